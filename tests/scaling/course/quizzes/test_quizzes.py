"""Every number of every quiz: ours, the one by hand, and the guide's."""

import json
import shlex

import pytest

from scaling.cli.main import main
from scaling.course.quizzes.answered import QuizVerdict, guess_of, near
from scaling.course.quizzes.command_lines import document_of
from scaling.course.quizzes.common_mistakes import KNOWN, mistake
from scaling.course.quizzes.quiz import (
    CHAPTERS,
    FOLDER,
    Quiz,
    QuizAnswer,
    compute,
    find,
    number,
    quizzes,
)
from scaling.meshes.errors import InputError

ALL = [(quiz, answer) for quiz in quizzes() for answer in quiz.answers]


@pytest.mark.parametrize(
    ("quiz", "answer"), ALL, ids=[f"{quiz.id}, {answer.name}" for quiz, answer in ALL]
)
def test_our_number_is_the_one_by_hand_and_the_guides_or_the_reason_is_given(
    quiz: Quiz, answer: QuizAnswer
):
    verdict = QuizVerdict(quiz, answer, compute(answer))
    assert verdict.word != "wrong", str(verdict)
    agrees = verdict.as_expected and verdict.as_printed
    assert not (agrees and answer.reason), "nothing differs, the reason is stale"


LINES = [line for _, answer in ALL for line in answer.commands]
OF_EACH_COMMAND = {line.split()[0]: f"scaling {line}" for line in reversed(LINES)}


@pytest.mark.parametrize("line", OF_EACH_COMMAND.values())
def test_the_command_that_answers_a_quiz_prints_what_it_is_answered_with(line, capsys):
    _, *words = shlex.split(line)
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document_of(line)


@pytest.mark.parametrize(("quiz", "answer"), ALL, ids=[f"{q.id}, {a.name}" for q, a in ALL])
def test_every_mistake_is_known_and_distinct_from_a_right_guess(quiz: Quiz, answer: QuizAnswer):
    for text in answer.mistakes:
        found = mistake(text)
        assert not near(found.factor, 1.0, answer.tolerance), text


def test_quizzes_have_ids_of_their_own_and_stand_in_their_chapters_file():
    ids = [name for quiz in quizzes() for name in (quiz.id, quiz.former_id) if name]
    assert len(set(ids)) == len(ids) and find("gpu-text-ar58") == find("gpu-all-reduce")
    assert {quiz.chapter for quiz in quizzes()} <= set(CHAPTERS)
    files = {file.name.removesuffix(".toml") for file in FOLDER.iterdir()}
    assert files <= set(CHAPTERS)


def test_a_number_stands_at_a_path_of_a_document():
    last = {"name": "x/s of a y", "answer": 4}
    document = {"answer": 1, "parts": [{"name": "b", "answer": 2.5, "rows": [{"x (s)": 3}]}, last]}
    assert number(document, "") == 1
    assert number(document, "x/s of a y") == 4
    assert number(document, "b") == 2.5
    assert number(document, "b/rows/0/x (s)") == 3
    assert number([{"time": 4}], "0/time") == 4


@pytest.mark.parametrize("path", ["c", "b/rows/1", "b/name", "parts"])
def test_a_path_without_a_number_is_named(path):
    document = {"answer": 1, "parts": [{"name": "b", "answer": 2.5, "rows": [{"x": 3}]}]}
    with pytest.raises(InputError):
        number(document, path)


def test_mistakes_are_sentences():
    for known in KNOWN.values():
        assert known.done.endswith(".") and known.check.endswith(".")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,040", 1040), (" -1,000,000.5e1 ", -10000005), ("1e3", 1000), ("1,5", None),
     ("1,0,4", None), ("1,0000", None), ("1,000,00", None), (",5", None), ("1.5,000", None)],
)  # fmt: skip
def test_commas_stand_between_groups_of_three_digits(text, value):
    if value is None:
        with pytest.raises(InputError, match="no number"):
            guess_of(text)
    else:
        assert guess_of(text) == value


@pytest.mark.parametrize(
    ("id", "number"),
    [("gpu-q1.2", "26.9 TFLOP/s"), ("tpu-q3", "57,375"), ("inference-q3", "1.4 ms")],
)
def test_the_command_below_an_answer_prints_it(id, number, capsys):
    for line in find(id).answers[0].typed:
        main(shlex.split(line)[1:])
    assert number in capsys.readouterr().out


def test_a_guess_with_a_unit_is_told_the_one_that_is_asked(capsys):
    assert main(["learn", "quiz", "gpu-q2.3", "--guess", "1044us"]) == 2
    assert "2e3, in ms" in capsys.readouterr().err
