"""Answers of a class, judged: every run.json below a folder, each by the puzzle that it is of.

    grade(Path("handed-in"))        handed-in/ann.json, handed-in/bob/puzzle-7.json, ...

The puzzle is that of the run's name, `puzzle-7` as `scaling learn puzzle 7 --start` writes it; else
that of the file's name or folder. What cannot be judged says why, and the others are. A closed form
says whether the goals are reached, but does not decide.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.api.predict import SOURCES
from scaling.course.language import said, t
from scaling.course.puzzles.check import check_puzzle
from scaling.course.puzzles.puzzle import puzzles
from scaling.meshes.errors import InputError, check_keys, printable
from scaling.meshes.reading import read_json
from scaling.meshes.result import Result
from scaling.report.formatting import columns

NAMED = re.compile(r"puzzle[-_ ]?0*(\d{1,3})(?!\d)", re.IGNORECASE)
MOST = 1000  # files: a year's students; one takes up to some ten seconds
OPEN = "?: by the closed form, which does not decide; the compiler does, without --source analytic"


@dataclass(frozen=True)
class GradedAnswer:
    """One file."""

    file: str  # below the folder
    puzzle: int | None = None
    source: str = ""  # compiled, stored or analytic
    reached: bool = False  # all goals, by that source
    score: float | None = None
    best_known: float | None = None  # by the same front end
    shown: tuple[str, str] = ("", "")  # both as they are printed
    missed: tuple[str, ...] = ()  # goals
    problem: str = ""  # why it was not judged

    @property
    def solved(self) -> bool | None:
        """Whether it solves the puzzle; None: a closed form, or nothing, was asked."""
        return self.reached if self.source not in ("", "analytic") else None

    @property
    def state(self) -> str:
        """The same in a word."""
        if self.problem:
            return t("not judged")
        return (t("yes") if self.reached else t("no")) + "?" * (self.solved is None)

    @property
    def note(self) -> str:
        """What is missed, or why it was not judged."""
        return said(self.problem) or "; ".join(self.missed)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the document has it."""
        names = ("file", "puzzle", "source", "reached", "solved", "score", "best_known", "problem")
        return {**{name: getattr(self, name) for name in names}, "missed": list(self.missed)}


@dataclass(frozen=True, repr=False)
class Grades(Result):
    """All answers; prints as the page of `scaling learn grade`."""

    folder: str
    answers: tuple[GradedAnswer, ...]

    @property
    def solved(self) -> int:
        """How many solve their puzzle."""
        return sum(bool(one.solved) for one in self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling learn grade --json` prints."""
        return {"folder": self.folder, "answers": [one.to_dict() for one in self.answers]}

    def line(self) -> str:
        all = len(self.answers)
        return t("{n} of {all} solved in {folder}", n=self.solved, all=all, folder=self.folder)

    def __str__(self) -> str:
        rows = [
            [printable(one.file), str(one.puzzle or "?"), one.state, *one.shown, one.note]
            for one in self.answers
        ]
        head = [t("file"), t("puzzle"), t("solved"), t("score"), t("best known"), ""]
        lines = [*columns([head, *rows], left=(0, 2, 5)), self.line()]
        open_ = any(one.source == "analytic" for one in self.answers)
        return "\n".join([*lines, t(OPEN)] if open_ else lines)


def grade(folder: Path, source: str = "auto") -> Grades:
    """Judge all answers below a folder.

    Args:
        source: of the steps, as for `check_puzzle`.

    Raises:
        InputError: there is no such folder, no run.json in it, or too many.
    """
    check_keys([source], SOURCES, "--source", "source")
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; put the answers of a class into one")
    files = sorted(path for path in folder.rglob("*.json") if not path.is_symlink())
    files = [path for path in files if path.is_file()]
    if not 1 <= len(files) <= MOST:
        raise InputError(f"{folder} holds {len(files)} files *.json; 1 to {MOST} are judged")
    return Grades(str(folder), tuple(_graded(path, folder, source) for path in files))


def _graded(path: Path, folder: Path, source: str) -> GradedAnswer:
    file = str(path.relative_to(folder))
    number: int | None = None
    try:
        number = _puzzle_of(path, file)
        result = check_puzzle(number, str(path.resolve()), source)
    except InputError as error:
        return GradedAnswer(file, number, problem=printable(" ".join(str(error).split())))
    goal, best = result.puzzle.score, result.best_known
    return GradedAnswer(
        *(file, number, result.prediction.source, result.solved, result.score, best),
        (goal.show(result.score), "" if best is None else goal.show(best)),
        tuple(str(one) for one in result.judged if not one.reached),
    )


def _puzzle_of(path: Path, file: str) -> int:
    """Return the number of the puzzle that a file answers; InputError if nothing says it."""
    document = read_json(path)
    name = document.get("name", "") if isinstance(document, dict) else ""
    for number in _numbers(str(name)[:100], file):
        if 1 <= number <= len(puzzles()):
            return number
    raise InputError('of which puzzle? begin its "name", or that of its file, with puzzle-N')


def _numbers(*texts: str) -> Iterator[int]:
    """Yield the numbers that texts name, the last of each first: a file before its folder."""
    for text in texts:
        yield from reversed([int(found) for found in NAMED.findall(text)])
