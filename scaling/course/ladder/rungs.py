"""The ladder: one question, answered by a guess, a bound, a rule, a fit, a program, a measurement.

    your guess   ->  bound  ->  textbook rule  ->  fitted  ->  compiled program  ->  measured

Each rung says what it adds to the one below. A page shows the rungs that exist; the JSON document
has all six, and says why one is missing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scaling.course.language import padded, t
from scaling.meshes.result import Result
from scaling.questions.page import show

RUNGS = ("guess", "bound", "textbook", "fitted", "compiled", "measured")


@dataclass(frozen=True)
class Rung:
    """One rung: its number, and what it adds to the rung below, or why there is none."""

    name: str  # one of RUNGS
    value: float | None
    adds: str


@dataclass(frozen=True, repr=False)
class Ladder(Result):
    """The rungs of one question, in the order of RUNGS."""

    question: str
    unit: str
    rungs: tuple[Rung, ...]

    def __post_init__(self) -> None:
        assert tuple(rung.name for rung in self.rungs) == RUNGS

    def __getitem__(self, name: str) -> Rung:
        return self.rungs[RUNGS.index(name)]

    @property
    def steps(self) -> list[tuple[Rung, str]]:
        """Each rung that exists, with how far it lies from the one below: `+35%`."""
        found, below = [], 0.0
        for rung in self.rungs:
            if rung.value is None:
                continue
            found.append((rung, f"{rung.value / below - 1:+z.0%}" if below else ""))
            if rung.name != "guess":
                below = rung.value
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the ladder as JSON has it."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the question and a line for each rung, with its step from the one below."""
        lines = [self.question]
        width = max((len(show(rung.value, self.unit)) for rung, _ in self.steps), default=0)
        for rung, step in self.steps:
            value = show(rung.value, self.unit)
            lines.append(f"  {padded(t(rung.name), 9)} {value:>{width}}  {step:>7}  {rung.adds}")
        return "\n".join(lines)

    def line(self) -> str:
        last = next((rung for rung in reversed(self.rungs) if rung.value is not None), None)
        found = f": {last.name} {show(last.value, self.unit)}" if last else ""
        return f"ladder of {len(self.steps)} rungs, {self.question}{found}"


def ladder(question: str, unit: str, guess: float | None, rungs: Sequence[Rung]) -> Ladder:
    """Return a ladder with the guess below its other rungs; one not given does not exist."""
    first = Rung("guess", guess, t("yours") if guess is not None else t("none was given"))
    given = {rung.name: rung for rung in (first, *rungs)}
    return Ladder(
        question, unit, tuple(given.get(name, Rung(name, None, "none")) for name in RUNGS)
    )
