"""What pages ask: quizzes and verdicts as JSON, and one message for what cannot be answered."""

import json

import pytest

from scaling.course.quizzes.quiz import quizzes
from scaling.course.web import ask as asking
from scaling.course.web.ask import ask
from scaling.meshes.errors import InputError

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


def test_a_guess_is_judged_as_the_command_line_does(capsys):
    from scaling.cli.main import main

    found = answer("quiz", id=QUIZ, guesses=[2.1])
    assert main(["learn", "quiz", QUIZ, "--guess", "2.1", "--json"]) == 0
    for row, same in zip(
        found["numbers"], json.loads(capsys.readouterr().out)["answers"], strict=True
    ):
        assert {key: row[key] for key in same} == same
    (row,) = found["numbers"]
    assert not row["right"] and row["slips"][0]["sentence"] and row["shown"] == "1.044 ms"
    assert answer("quiz", id=QUIZ, guesses=["1.04"])["numbers"][0]["right"]


def test_a_number_may_be_left_out():
    quiz = next(quiz for quiz in quizzes() if len(quiz.answers) > 1)
    rows = answer("quiz", id=quiz.id, guesses=[None, quiz.answers[1].expected])["numbers"]
    assert "verdict" not in rows[0] and rows[1]["right"]


def test_a_site_brings_the_numbers_that_its_browser_cannot_compute(monkeypatch, tmp_path):
    (tmp_path / "answers.json").write_text(json.dumps({QUIZ: [{"ours": 42.0, "formulas": []}]}))
    monkeypatch.setattr(asking, "COMPUTED", tmp_path / "answers.json")
    asking._ours.cache_clear()
    try:
        assert answer("quiz", id=QUIZ)["numbers"][0]["answer"] == 42.0
    finally:
        asking._ours.cache_clear()


def test_too_many_guesses_are_counted_before_any_is_read():
    class Unread:
        def __str__(self):
            raise AssertionError("a guess was read")

    with pytest.raises(InputError, match="asks for 1 number, not 200000"):
        asking.one_quiz({"id": QUIZ, "guesses": [Unread()] * 200_000})


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
        ('{"what": "quiz", "with": {}}', "no quiz"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.33"}}', "did you mean"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": 2}}', "list"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": [1, 2]}}', "asks for 1"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": ["x"]}}', "no number"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": [NaN]}}', "no number"),
        ('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": [[1]]}}', "no number"),
        (f'{{"what": "quiz", "with": {{"id": "gpu-q2.3", "guesses": [1{"0" * 4000}]}}}}', "number"),
    ],
)
def test_bad_questions_have_one_message(request_, said):
    found = json.loads(ask(request_))
    assert list(found) == ["error"] and said in found["error"]
    assert len(found["error"]) < 2000
