"""Puzzles: each begins unsolved, its best answer solves it, and answers keep to its rules."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scaling.api.runs import apply_settings
from scaling.course.lessons.index import lessons
from scaling.course.puzzles.check import check_puzzle
from scaling.course.puzzles.goal import Goal, JudgedGoal
from scaling.course.puzzles.puzzle import FOLDER, Puzzle, find, puzzles
from scaling.meshes.errors import InputError
from scaling.report.stream_rows import row
from tests.scaling.cli.running import check_refused, run

NUMBERS = [puzzle.number for puzzle in puzzles()]
# By the closed form the best answer does not fit: 113 % for 32 stages, which take 79 % compiled.
NOT_BY_THE_CLOSED_FORM = (11,)


def without_compiler(puzzle: Puzzle) -> str:
    """How a puzzle is judged here: what the compiler adds is in programs of the package only."""
    return "stored" if puzzle.score.measure == "moved" else "analytic"


def answer_to(number: int, **changed) -> dict:
    """A run.json of one's own: the run to begin with, some keys replaced."""
    return {**find(number).document, **changed}


def written(path, document) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_there_are_twelve_puzzles_of_lessons_and_three_break_something():
    assert NUMBERS == list(range(1, 13))
    assert sum(puzzle.title.startswith("Break it") for puzzle in puzzles()) == 3
    assert {puzzle.lesson for puzzle in puzzles()} <= {one.number for one in lessons()}
    assert all(puzzle.story.strip() and puzzle.hint.strip() for puzzle in puzzles())


@pytest.mark.parametrize("number", NUMBERS)
def test_a_puzzle_begins_unsolved_and_its_best_answer_solves_it(number):
    puzzle = find(number)
    source = without_compiler(puzzle)
    start = check_puzzle(number, puzzle.start, source)
    best = check_puzzle(number, apply_settings(puzzle.start, puzzle.best), source)
    assert not start.solved
    assert best.solved != (number in NOT_BY_THE_CLOSED_FORM), str(best)
    assert puzzle.score.is_better(best.score, start.score) or not start.judged[-1].reached


@pytest.mark.parametrize("number", [n for n in NUMBERS if find(n).score.measure != "moved"])
def test_a_closed_form_praises_no_answer_however_good(number):
    puzzle = find(number)
    closed = check_puzzle(number, apply_settings(puzzle.start, puzzle.best), "analytic")
    factor = 0.5 if puzzle.score.least is None else 2.0
    first = replace(closed.judged[0], value=factor * closed.judged[0].value)
    for one in (closed, replace(closed, judged=(first, *closed.judged[1:]))):
        said = str(one)
        assert one.solved != (number in NOT_BY_THE_CLOSED_FORM)
        assert not one.is_better and "only the compiled step decides" in said
        assert not any(word in said for word in ("solved:", "best known", "better than"))


@pytest.mark.parametrize("number", NUMBERS)
def test_the_best_answer_known_is_within_the_limits(number):
    puzzle = find(number)
    known = puzzle.known
    assert known is not None and known.tried > 0
    values = known.compiled_values or known.analytic_values
    assert bool(known.compiled) == bool(known.compiled_values)
    for goal in puzzle.goals:
        assert goal.is_reached(values[goal.measure])
    assert puzzle.limit and known.runner_up


@pytest.mark.slow
@pytest.mark.deviceless
@pytest.mark.parametrize("number", NUMBERS)
def test_the_compiler_judges_every_start_unsolved_and_every_best_answer_solved(number):
    puzzle = find(number)
    assert not check_puzzle(number, puzzle.start, "compiled").solved
    best = check_puzzle(number, apply_settings(puzzle.start, puzzle.best), "compiled")
    assert best.solved, str(best)
    if puzzle.known.compiled:
        assert best.score == pytest.approx(best.best_known, rel=0.02)


def test_what_is_changed_against_the_rules_is_named(tmp_path, capsys):
    def check(number, document):
        return run(capsys, "learn", "check", number, written(tmp_path / "mine.json", document))

    longer = {"global_batch": 16, "seq_len": 2048, "microbatches": 2}
    check_refused(check(1, answer_to(1, batch=longer)), "batch.seq_len is 2048, not 4096", "remat")
    check_refused(check(1, answer_to(1, model="llama3-1b")), "puzzle 1 does not allow", "more;")
    other = {"name": "dgx-h100", "nodes": 1}
    check_refused(check(1, answer_to(1, cluster=other)), "another cluster", '"cluster"')
    check_refused(check(4, answer_to(4, mesh={"fsdp": 8})), "8 devices", "all 128")
    check_refused(check(4, answer_to(4, mesh={"fsdp": 4096})), "needs 4096 devices", "has 128")
    two = answer_to(12, attention="unfused", remat="none")
    check_refused(check(12, two), "takes 1 change, and 2 were made: attention, remat")


def test_answers_that_cannot_be_read_or_run_are_refused(tmp_path, capsys):
    def check(*words):
        return run(capsys, "learn", "check", *words)

    def mine(document):
        return written(tmp_path / "mine.json", document)

    for number in ("0", "13", "-1", "1.5", "x", "", "9" * 400, "\N{SUPERSCRIPT TWO}"):
        check_refused(check(number, "mine.json"), "there is no puzzle", "1 to 12")
    check_refused(check(), "scaling learn check 1")
    check_refused(check("1"), "scaling learn check 1 my_run.json")
    check_refused(check("1", tmp_path / "none.json"), "cannot read", "none.json")
    check_refused(check("1", tmp_path), "unknown recipe")
    check_refused(check("1", mine("{")), "is not JSON")
    check_refused(check("1", mine("[]")), "expected a table")
    check_refused(check("1", mine('{"name": "a", "name": "b"}')), "given twice")
    check_refused(check("1", mine({"name": "a", "model": "llama3-8b"})), "missing 'batch'")
    check_refused(check("1", mine(answer_to(1, remat="ful"))), "did you mean 'full'?")
    check_refused(check("1", mine(answer_to(1, rematt="full"))), "did you mean 'remat'?")
    batch = {"global_batch": 16, "seq_len": 4096}
    for count in (3, 8, 0, 10**15, True):
        document = answer_to(1, batch={**batch, "microbatches": count})
        check_refused(check("1", mine(document)), "microbatch")
    start = mine(find(1).document)
    check_refused(check("1", start, "--source", "guess"), "'guess'", one_line=False)
    check_refused(check("1", start, "--plot", "step.png"), "ends in .svg")
    check_refused(check("1", start, "--plot", tmp_path / "no" / "step.svg"), "there is no folder")
    moved = written(tmp_path / "moved.json", find(10).document)
    check_refused(check("10", moved, "--source", "analytic"), "use --source compiled")


def test_the_task_is_printed_and_its_run_written_over_no_other_file(tmp_path, capsys):
    code, listed, _ = run(capsys, "learn", "puzzles")
    assert code == 0 and listed.count("\npuzzle ") == len(NUMBERS) - 1
    file = tmp_path / "mine.json"
    code, task, _ = run(capsys, "learn", "puzzle", "1", "--start", file)
    assert code == 0 and find(1).title in task and "you may change" in task
    assert json.loads(file.read_text()) == find(1).document
    check_refused(run(capsys, "learn", "puzzle", "1", "--start", file), "exists already")
    check_refused(run(capsys, "learn", "puzzle"), "scaling learn puzzles lists all")
    code, out, _ = run(capsys, "learn", "puzzle", "1", "--json")
    assert code == 0 and "best" not in json.loads(out)


def test_a_judgement_is_printed_drawn_and_written_as_json(tmp_path, capsys):
    file = written(tmp_path / "mine.json", find(1).document)
    words = ("learn", "check", "1", file, "--source", "analytic")
    picture = tmp_path / "step.svg"
    code, out, _ = run(capsys, *words, "--plot", picture)
    assert code == 0 and "1 of 2 goals missed" in out and "hint:" in out and "\ncompute" in out
    assert picture.read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    document = json.loads(run(capsys, *words, "--json")[1])
    assert document["solved"] is False and document["best_known"] is None
    assert [goal["measure"] for goal in document["goals"]] == ["step_time", "filled"]


def test_only_the_compiled_step_is_better_than_the_best_known():
    """Puzzle 1 in two microbatches: 2.15 s by the closed form, and 2.37 s compiled, too slow."""
    puzzle = find(1)
    tried = {"batch.microbatches": 2, "remat": "selective"}
    closed = check_puzzle(1, apply_settings(puzzle.start, tried), "analytic")
    assert closed.solved and puzzle.score.is_better(closed.score, closed.best_known)
    assert not closed.is_better and not closed.to_dict()["better"]
    assert "only the compiled step decides" in str(closed) and "inside its limit" in str(closed)
    assert not any(word in str(closed) for word in ("better than", "best known", "solved"))

    class Compiled:
        source = "compiled"

    quick = replace(closed.judged[0], value=0.9 * puzzle.known.value("step_time", "compiled"))
    best = replace(closed, prediction=Compiled(), judged=(quick, *closed.judged[1:]))
    assert best.is_better and best._verdict()[0].startswith("solved: yours")
    assert "better than the best known" in best._verdict()[1]
    assert not puzzle.score.is_better(closed.score * 0.999, closed.score)


def test_goals_say_by_how_much_they_are_missed():
    assert "missed by 500 ms" in str(JudgedGoal(Goal("step_time", most=2.0), 2.5))
    assert str(JudgedGoal(Goal("mfu", most=0.05), 0.08)).endswith("8.0%, missed by 3.0 points")
    assert JudgedGoal(Goal("moved", least=1.2), 1.2).reached
    for wrong in ({"most": 1.0, "least": 1.0}, {}):
        with pytest.raises(InputError, match="either most or least"):
            Goal("mfu", **wrong)
    with pytest.raises(InputError, match="did you mean 'step_time'"):
        Goal("steptime", most=1.0)


def test_a_row_of_characters_shows_what_fills_each_part():
    assert row([(0.0, 0.5, "F"), (0.5, 0.75, "B")], 1.0, 8) == "FFFFBB.."
    assert row([], 1.0, 4) == "...."
    many = [(x, x + 0.001, "f") for x in np.arange(0.0, 1.0, 0.01)]
    assert row(many, 1.0, 10) == "f" * 10
    assert row([(0.0, 0.001, "f")], 1.0, 10) == "." * 10


def test_puzzles_bring_their_own_clusters():
    stated = {puzzle.cluster for puzzle in puzzles() if puzzle.cluster.endswith(".toml")}
    assert stated and all((FOLDER / name).is_file() for name in stated)


def test_the_run_of_another_puzzle_is_named_by_its_number():
    with pytest.raises(InputError, match="write scaling learn check 1"):
        check_puzzle(2, find(1).start, source="analytic")
