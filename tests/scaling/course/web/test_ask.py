"""What pages ask: quizzes and verdicts as JSON, and one message for what cannot be answered."""

import json

import pytest

from scaling.cli.main import main
from scaling.course.quizzes.common_mistakes import NEAR
from scaling.course.quizzes.quiz import quizzes
from scaling.course.web.ask import ask

QUIZ = "gpu-q2.3"  # the time of one all-gather: 1.04 ms


def asked(what, **given):
    return json.loads(ask(json.dumps({"what": what, "with": given})))


def answer(what, **given):
    return asked(what, **given)["answer"]


def test_all_quizzes_are_listed_with_the_numbers_that_they_ask_for():
    found = answer("quizzes")
    assert [row["id"] for row in found] == [quiz.id for quiz in quizzes()]
    row = next(row for row in found if row["id"] == QUIZ)
    assert row["chapter"] == "gpus" and row["numbers"][0]["unit"] == "ms"
    assert "answer" not in row["numbers"][0], "it comes after the guess"


def test_a_page_is_given_what_the_command_line_computes_and_what_a_guess_can_betray(capsys):
    """The page judges itself (quizzes.js): tests/browser holds it against `diagnose`."""
    found = answer("quiz", id=QUIZ)
    assert main(["learn", "quiz", QUIZ, "--json"]) == 0
    (same,) = json.loads(capsys.readouterr().out)["answers"]
    (row,) = found["numbers"]
    assert {key: row[key] for key in ("answer", "commands", "reason")} == {
        key: same[key] for key in ("answer", "commands", "reason")
    }
    assert row["shown"] == "1.044 ms" and found["near"] == NEAR
    assert 2 in [mistake["factor"] for mistake in row["mistakes"]]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", '{"what": NAME'),
        ('{"what": 3}', '{"what": NAME'),
        ('{"what": "quizes"}', "did you mean 'quizzes'"),
        ('{"what": "quizzes", "wiht": {}}', "did you mean 'with'"),
        ('{"what": "quizzes", "with": 3}', "a table"),
        ('{"what": "quizzes", "with": {"id": 1}}', "unknown key"),
        ('{"what": "quizzes", "lang": "fr"}', "no language of the course"),
        ('{"what": "quiz", "with": {}}', "no quiz"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.33"}}', "did you mean"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": [1]}}', "unknown key"),
    ],
)
def test_bad_questions_have_one_message(request_, said):
    found = json.loads(ask(request_))
    assert list(found) == ["error"] and said in found["error"]
    assert len(found["error"]) < 2000


def test_an_answer_is_in_the_language_of_the_page_with_the_same_numbers():
    question = {"what": "quiz", "with": {"id": QUIZ}}
    english, korean = (json.loads(ask(json.dumps(question | {"lang": n}))) for n in ("en", "ko"))
    assert "measured" in english["answer"]["note"] and "측정값" in korean["answer"]["note"]
    (row,), (same,) = english["answer"]["numbers"], korean["answer"]["numbers"]
    assert row["name"] == "time" and same["name"] == "시간"
    kept = ("answer", "shown", "book_shown", "tolerance", "commands", "formulas")
    assert {key: row[key] for key in kept} == {key: same[key] for key in kept}
    factors = [[one["factor"] for one in some["mistakes"]] for some in (row, same)]
    assert factors[0] == factors[1] and row["mistakes"] != same["mistakes"]
