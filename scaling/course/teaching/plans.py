"""Plans of 45 minutes: what `plans.toml` says of each lesson and lab."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from scaling.course.lessons.index import Lesson, labs, lessons
from scaling.meshes.errors import InputError
from scaling.meshes.reading import package_toml, read

MINUTES = 45  # of a plan: a lesson at school


@dataclass(frozen=True)
class Step:
    """A part of the time."""

    minutes: int
    title: str
    what: str


@dataclass(frozen=True)
class Plan:
    """How a class spends a lesson or lab."""

    steps: tuple[Step, ...]
    board: str  # what to draw first
    ask: tuple[str, ...]  # questions to the class, behind the answer


@cache
def _table() -> Mapping[str, Any]:
    return package_toml("course/teaching/plans.toml")


def plan(lesson: Lesson) -> Plan:
    """Return the plan of a lesson or lab."""
    kind, _, _ = lesson.file.stem.partition("_")
    return read(Plan, {**_table()[kind], **_table()[lesson.file.stem]}, lesson.file.stem)


def taught(words: str) -> Lesson:
    """Return the lesson or lab that is named: `3`, `lab 5`; InputError says which there are."""
    kind, _, number = " ".join(words.lower().split()).rpartition(" ")
    kind = kind or "lesson"
    found = {"lesson": lessons, "lab": labs}.get(kind, tuple)()
    for one in found:
        if str(one.number) == number:
            return one
    last = {"lesson": lessons()[-1].number, "lab": labs()[-1].number}
    raise InputError(
        f"{words!r} is not taught: there are 1 to {last['lesson']}, and for labs "
        f"'lab 1' to 'lab {last['lab']}'"
    )
