"""The puzzles: a run that misses its goals, and what of it may be changed to reach them.

A puzzle (scaling/course/puzzles/tasks/NN_name.toml) holds

    title, story, hint, limit              # between what the first limit lies
    lesson = 11                            # whose idea it is
    cluster, nodes                         # of the catalogue, or a TOML file beside the puzzle
    may = ["mesh", "batch.microbatches"]   # keys of run.json that may be changed, and those below
    changes = 1                            # how many of them at most; left out: any number
    [run]                                  # the run to begin with, as in run.json
    [[goal]]                               # every one must be reached (goal.py)
    measure = "step_time"
    most = 3.9                             # or least
    [best]                                 # the best answer known: values by dotted key
    [known]                                # how it is known, written by `experiments.puzzles`

That the step fits in memory is a goal of every puzzle that has none on `filled`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from scaling.course.puzzles.goal import Goal
from scaling.meshes.errors import InputError, is_count
from scaling.meshes.reading import parse_toml, read
from scaling.run import Run, read_run

FOLDER = resources.files("scaling.course.puzzles") / "tasks"
FITS = Goal("filled", most=1.0)


@dataclass(frozen=True)
class KnownAnswers:
    """What is known about the answers of a puzzle, by trying them."""

    tried: int  # settings priced from their closed forms
    compiled: int  # the best of these, priced from their compiled steps
    compiled_values: Mapping[str, float]  # measure -> value of the best answer, compiled
    analytic_values: Mapping[str, float]  # the same by its closed form
    runner_up: str  # the second best that was compiled, and its score
    date: str
    versions: Mapping[str, str]  # of jax and its relatives

    def value(self, measure: str, source: str) -> float | None:
        """Value of the best answer by the same front end; that of a stored step is compiled."""
        values = self.analytic_values if source == "analytic" else self.compiled_values
        return values.get(measure)


@dataclass(frozen=True)
class Puzzle:
    """One puzzle; see above."""

    title: str
    story: str
    hint: str
    lesson: int
    cluster: str
    nodes: int
    may: tuple[str, ...]
    run: dict[str, Any]
    goal: tuple[Goal, ...]
    best: dict[str, Any]
    limit: str  # between what the first limit lies
    known: KnownAnswers | None = None
    changes: int | None = None
    number: int = field(default=0)

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What must be reached, memory included."""
        has_memory = any(goal.measure == FITS.measure for goal in self.goal)
        return self.goal if has_memory else (*self.goal, FITS)

    @property
    def score(self) -> Goal:
        """The goal by which answers are compared: the first."""
        return self.goal[0]

    @property
    def place(self) -> dict[str, Any]:
        if self.cluster.endswith(".toml"):
            return {"file": str(FOLDER / self.cluster), "nodes": self.nodes}
        return {"name": self.cluster, "nodes": self.nodes}

    @property
    def document(self) -> dict[str, Any]:
        return {"name": f"puzzle-{self.number}", **self.run, "cluster": self.place}

    @property
    def start(self) -> Run:
        return read_run(self.document, f"puzzle {self.number}")


@cache
def puzzles() -> tuple[Puzzle, ...]:
    """Return all puzzles, in their order."""
    files = sorted((f for f in FOLDER.iterdir() if f.name[:2].isdigit()), key=lambda f: f.name)
    return tuple(
        read(Puzzle, {**parse_toml(f.read_text(encoding="utf-8"), f.name), "number": n}, f.name)
        for n, f in enumerate(files, 1)
    )


def find(number: object) -> Puzzle:
    """Return the puzzle of a number; InputError says which there are."""
    text, every = str(number).strip(), puzzles()
    if not is_count(text) or not 1 <= int(text) <= len(every):
        raise InputError(f"there is no puzzle {text!r}; there are 1 to {len(every)}")
    return every[int(text) - 1]
