"""Numbers that were printed and are wrong: each beside what a command of ours computes.

printed / computed, looked up among the named mistakes -> what was probably done
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from scaling.course.quizzes.common_mistakes import Verdict, diagnose
from scaling.course.quizzes.quiz import QuizAnswer, compute, quiz_answer
from scaling.meshes.reading import parse_toml

FILE = resources.files("scaling.course.lessons") / "data" / "lab4_errata.toml"
RIGHT = 0.03  # relative distance up to which a printed number is right: it has two or three digits
OTHER = "another cause"
NOTHING = "nothing is wrong"


@dataclass(frozen=True)
class Exhibit:
    """A printed number, and the question whose answer it claims to be."""

    title: str
    where: str  # kind of document
    claim: str
    question: QuizAnswer  # with the commands that answer it; `book` is the printed number

    @property
    def printed(self) -> float:
        """The number that was printed, in the question's unit."""
        assert self.question.book is not None
        return self.question.book


@dataclass(frozen=True)
class Shown:
    """An exhibit with what our commands compute."""

    exhibit: Exhibit
    computed: float
    verdict: Verdict  # of the printed number

    @property
    def ratio(self) -> float:
        """Printed over computed."""
        return self.exhibit.printed / self.computed

    @property
    def cause(self) -> str:
        """The name of the mistake, or that nothing is wrong, or that no mistake explains it."""
        if self.verdict.right:
            return NOTHING
        return self.verdict.mistakes[0].name if self.verdict.mistakes else OTHER


@cache
def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, in the order of the file."""
    return tuple(map(_exhibit, parse_toml(FILE.read_text("utf-8"), FILE.name)["exhibit"]))


def shown(exhibit: Exhibit) -> Shown:
    """Return an exhibit with our number."""
    ours = compute(exhibit.question)
    return Shown(exhibit, ours, diagnose(exhibit.printed, ours, RIGHT, exhibit.question.mistakes))


def causes(every: tuple[Shown, ...]) -> list[str]:
    """Return what a reader can choose from: each cause once, the mistakes first."""
    mistakes = sorted({one.cause for one in every} - {OTHER, NOTHING})
    return [*mistakes, OTHER, NOTHING]


def _exhibit(table: Mapping[str, Any]) -> Exhibit:
    title, printed, mistake = table["title"], table["printed"], table["mistake"]
    asked = {"name": title, "expected": printed, "book": printed, "tolerance": RIGHT}
    asked |= {"reason": table["why"], "mistakes": [mistake] if mistake else []}
    return Exhibit(title, table["where"], table["claim"], quiz_answer({**table, **asked}))
