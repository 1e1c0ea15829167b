"""Numbers that were printed and are wrong: each beside what a command of ours computes.

printed / computed, looked up among the named mistakes -> what was probably done
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

from scaling.course.language import language, t
from scaling.course.quizzes.common_mistakes import diagnose
from scaling.course.quizzes.quiz import QuizAnswer, compute
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
    question: QuizAnswer  # with the commands that answer it; `expected` is the printed number

    @property
    def printed(self) -> float:
        """The number that was printed, in the question's unit."""
        return self.question.expected

    @cached_property
    def computed(self) -> float:
        """What our commands compute."""
        return compute(self.question)

    @property
    def ratio(self) -> float:
        """Printed over computed."""
        return self.printed / self.computed

    @property
    def cause(self) -> str:
        """The name of the mistake, or that nothing is wrong, or that no mistake explains it."""
        verdict = diagnose(self.printed, self.computed, RIGHT, self.question.mistakes)
        if verdict.right:
            return NOTHING
        return verdict.mistakes[0].name if verdict.mistakes else OTHER

    @property
    def said(self) -> str:
        """The cause in the language that is spoken."""
        return t(self.cause)


def exhibits() -> tuple[Exhibit, ...]:
    """Return all exhibits, in the order of the file."""
    return _exhibits(language())


@cache
def _exhibits(spoken: str) -> tuple[Exhibit, ...]:
    return tuple(map(_exhibit, parse_toml(FILE.read_text("utf-8"), FILE.name)["exhibit"]))


def causes() -> dict[str, str]:
    """Return what a reader can choose from: each cause once, as it is said, the mistakes first."""
    mistakes = sorted({one.cause for one in exhibits()} - {OTHER, NOTHING})
    return {t(cause): cause for cause in (*mistakes, OTHER, NOTHING)}


def _exhibit(table: Mapping[str, Any]) -> Exhibit:
    question = QuizAnswer(
        name=t(table["title"]),
        ask=table["ask"],
        expected=table["printed"],
        unit=table.get("unit", ""),
        formula=table.get("formula", "ask"),
        reason=t(table["why"]),
        mistakes=[*filter(None, [table["mistake"]])],
    )
    return Exhibit(t(table["title"]), t(table["where"]), t(table["claim"]), question)
