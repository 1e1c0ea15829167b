"""A folder of answers is judged; what cannot be judged says why, and the others are."""

import json
from dataclasses import replace

import pytest

from scaling.cli.main import main
from scaling.course.puzzles.grade import OPEN, GradedAnswer, Grades, grade
from scaling.course.puzzles.puzzle import puzzles
from scaling.meshes.errors import InputError


def answer(number, best=True, **more):
    """The best known answer to a puzzle, or the run that it begins with."""
    puzzle = puzzles()[number - 1]
    run = json.loads(json.dumps({k: v for k, v in puzzle.document.items() if k != "cluster"}))
    for key, value in puzzle.best.items() if best else ():
        *path, last = key.split(".")
        place = run
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return json.dumps(run | more)


@pytest.fixture
def class_folder(tmp_path):
    (tmp_path / "ann.json").write_text(answer(4))
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "Puzzle_05.json").write_text(answer(5, best=False, name="mine"))
    (tmp_path / "ann2.json").write_text(answer(4, best=False))
    for name, text in {
        "broken": "{",
        "deep": "[" * 100_000,
        "list": "[1]",
        "nameless": answer(1, name="mine"),
        "other": answer(4, name="puzzle-99"),
        "puzzle-4 wrong": answer(5, name="mine"),
        "binary": "\x00\x1b[2J",
        "odd": json.dumps({"name": ["puzzle-4"]}),
    }.items():
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "notes.txt").write_text("no answer")
    return tmp_path


def test_each_answer_is_judged_by_its_puzzle_and_rubbish_says_why(class_folder):
    grades = grade(class_folder, "analytic")
    by_file = {one.file: one for one in grades.answers}
    assert by_file["ann.json"].puzzle == 4 and by_file["ann.json"].reached
    assert by_file["bob/Puzzle_05.json"].puzzle == 5
    assert not by_file["ann2.json"].reached and by_file["ann2.json"].missed
    for name in ("broken", "deep", "list", "nameless", "other", "puzzle-4 wrong", "binary", "odd"):
        assert by_file[f"{name}.json"].problem, name
    assert not {"link.json", "folder.json", "notes.txt"} & set(by_file)
    assert "of which puzzle?" in by_file["nameless.json"].problem
    assert "\x1b" not in str(grades)


def test_a_closed_form_decides_nothing_and_a_compiled_step_does(class_folder):
    grades = grade(class_folder, "analytic")
    assert grades.solved == 0 and "0 of 11 solved" in str(grades) and OPEN in str(grades)
    assert all(one.solved is None for one in grades.answers)
    judged = GradedAnswer("a.json", 4, "compiled", True, 1.0)
    both = Grades("x", (judged, replace(judged, reached=False)))
    assert [one.state for one in both.answers] == ["yes", "no"]
    assert both.solved == 1 and OPEN not in str(both)


def test_the_command_prints_a_table_or_a_document(class_folder, capsys):
    assert main(["learn", "grade", str(class_folder), "--source", "analytic", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["answers"]) == 11
    assert {"file", "puzzle", "source", "reached", "solved", "score", "best_known"} <= set(
        document["answers"][0]
    )


def test_a_folder_without_answers_is_an_error(tmp_path):
    with pytest.raises(InputError, match="holds 0 files"):
        grade(tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        grade(tmp_path / "nothing")
    with pytest.raises(InputError, match="unknown source"):
        grade(tmp_path, "best")
