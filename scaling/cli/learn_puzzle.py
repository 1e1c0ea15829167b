"""`scaling learn puzzles | puzzle N | check N RUN`: the list, the task, the judgement."""

import json as json_text
import os
import shlex
from pathlib import Path
from typing import Any

from scaling.api.output_paths import check_outputs
from scaling.cli.show import show
from scaling.course.language import t
from scaling.course.puzzles.check import PuzzleResult, check_puzzle
from scaling.course.puzzles.puzzle import Puzzle, find, puzzles
from scaling.meshes.errors import InputError
from scaling.meshes.reading import writing
from scaling.run import run_dict
from scaling.run.recipes import file_of

SVG = "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" '  # a file of its own says what it is


def show_list(json: bool) -> int:
    """Print a line for each puzzle."""
    if json:
        print(json_text.dumps([_described(puzzle) for puzzle in puzzles()]))
        return 0
    for puzzle in puzzles():
        lesson = t("lesson {number}", number=puzzle.lesson)
        print(f"puzzle {puzzle.number:>2}  {t(puzzle.title)} ({lesson})")
    print(t("read one: scaling learn puzzle 1"))
    return 0


def show_task(number: str | None, start: Path | None, json: bool) -> int:
    """Print the task of a puzzle; with `start` also write its run.json, over no other file."""
    if number is None:
        raise InputError("write scaling learn puzzle 1; scaling learn puzzles lists all")
    puzzle = find(number)
    if start is not None:
        if os.path.lexists(start):
            raise InputError(f"--start {start} exists already; choose another file")
        check_outputs({"--start": start})
        with writing(start, "choose another --start"), start.open("x", encoding="utf-8") as file:
            file.write(json_text.dumps(puzzle.document, indent=1) + "\n")
    if json:
        print(json_text.dumps(_described(puzzle)))
        return 0
    answer = shlex.quote(str(start or "my_run.json"))
    head = t("puzzle {number}: {title}", number=puzzle.number, title=t(puzzle.title))
    print(f"{head}\n\n{t(puzzle.story).strip()}\n")
    place = {"nodes": puzzle.nodes, "cluster": Path(puzzle.cluster).stem}
    print(t("on {nodes} node(s) of {cluster}, from this run:", **place))
    print(json_text.dumps(_without_path(puzzle)))
    most = "" if puzzle.changes is None else t(" (of these {n} at most)", n=puzzle.changes)
    print(t("you may change{most}: {keys}", most=most, keys=", ".join(puzzle.may)))
    print("\n".join(t("goal: {goal}", goal=goal) for goal in puzzle.goals))
    if start is None:
        begin = f"scaling learn puzzle {puzzle.number} --start {answer}"
        print(t("begin: {command}", command=begin))
    judge = f"scaling learn check {puzzle.number} {answer}"
    if puzzle.score.measure != "moved":
        quick = f"{judge} --source analytic"
        print(t("quick: {command}   # a closed form, wrong by some percent", command=quick))
    print(t("judge: {command}   # compiles the step, up to a minute", command=judge))
    return 0


def check(number: str | None, run: str | None, source: str, plot: Path | None, json: bool) -> int:
    """Print the judgement of an answer; with `plot` also draw its step."""
    if number is None or run is None:
        raise InputError("write scaling learn check 1 my_run.json: a run.json is missing")
    puzzle = find(number)
    if plot is not None and plot.suffix != ".svg":
        raise InputError(f"--plot {plot}: the picture is an SVG; name a file that ends in .svg")
    check_outputs({"--plot": plot}, filter(None, [file_of(run)]))
    result = check_puzzle(puzzle.number, run, source)
    if plot is not None:
        draw(result, plot)
    return show(result, json)


def draw(result: PuzzleResult, path: Path) -> None:
    """Write the picture of a step: the rows of its stages, or the streams of one device."""
    from scaling.course.explorer.pictures import stages_picture, streams_pictures

    run = result.prediction.pricing.run
    assert run is not None
    pictures = [*stages_picture(run, result.priced), *streams_pictures(result.priced, 0.0)]
    with writing(path):
        path.write_text(pictures[0]["svg"].replace(*SVG, 1), encoding="utf-8")


def _without_path(puzzle: Puzzle) -> dict[str, Any]:
    """The run to begin with, its cluster as the line above names it."""
    return {key: value for key, value in puzzle.document.items() if key != "cluster"}


def _described(puzzle: Puzzle) -> dict[str, Any]:
    """A puzzle as JSON has it; the best answer is not told."""
    words = {name: getattr(puzzle, name) for name in ("number", "title", "story", "hint", "lesson")}
    goals = [
        {k: v for k, v in vars(goal).items() if v is not None} | {"words": str(goal)}
        for goal in puzzle.goals
    ]
    start = {**_without_path(puzzle), "cluster": puzzle.place}
    rules = {"may": list(puzzle.may), "changes": puzzle.changes, "goals": goals}
    return {**words, **rules, "start": start, "resolved": run_dict(puzzle.start)}
