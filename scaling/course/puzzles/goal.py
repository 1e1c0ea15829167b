"""What a puzzle measures of a step, and by how much a step misses a limit.

step_time           s
tokens_per_second   of all devices
filled              bytes at the peak over what a program can allocate: above 1 it does not fit
mfu                 model FLOPs over what the devices could do
bubble, waiting     share of the step in the pipeline's bubble, waiting for communication
moved               bytes of all collectives over those of the closed form's table
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaling.analytic.table import expected_bytes
from scaling.course.language import t
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.units import format_rate, format_time
from scaling.program.ir import Number
from scaling.run import Run
from scaling.simulate.prediction import Prediction

AGREES = 0.005  # share by which other versions of a compiler change a step that is the same


@dataclass(frozen=True)
class Measure:
    """A figure of a predicted step."""

    words: str
    of: Callable[[Prediction, Run], Number | None]
    show: Callable[[float], str]


def filled(prediction: Prediction, run: Run) -> Number | None:
    """Return bytes at the peak over the capacity; None where that is not known."""
    memory = prediction.memory
    return memory.peak / memory.capacity if memory.capacity else None


def moved(prediction: Prediction, run: Run) -> Number | None:
    """Return the bytes of all calls over those that the parallelism needs; None without any."""
    assert run.mesh is not None
    needed = sum(map(float, expected_bytes(run, run.mesh).values()))
    sent = sum(float(line.bytes * line.count) for line in prediction.collectives)
    return sent / needed if needed else None


def _percent(share: float) -> str:
    return f"{share:.1%}"


MEASURES = {
    "step_time": Measure("step", lambda p, run: p.step_time, format_time),
    "tokens_per_second": Measure(
        "throughput", lambda p, run: p.tokens_per_second, lambda x: format_rate(x, "tokens/s")
    ),
    "filled": Measure("memory", filled, _percent),
    "mfu": Measure("MFU", lambda p, run: p.mfu, _percent),
    "bubble": Measure("bubble", lambda p, run: p.time.bubble / p.step_time, _percent),
    "waiting": Measure(
        "waiting for communication",
        lambda p, run: p.time.exposed_communication / p.step_time,
        _percent,
    ),
    "moved": Measure("bytes moved", moved, lambda x: f"{x:.2f} x those needed"),
}


@dataclass(frozen=True)
class Goal:
    """A limit of one measure, from one side."""

    measure: str
    most: float | None = None
    least: float | None = None

    def __post_init__(self) -> None:
        check_keys([self.measure], MEASURES, "goal", "measure")
        if (self.most is None) == (self.least is None):
            raise InputError(f"goal {self.measure}: give either most or least")

    @property
    def words(self) -> str:
        return t(MEASURES[self.measure].words)

    @property
    def limit(self) -> float:
        """The value that is just good enough."""
        return self.least if self.most is None else self.most  # type: ignore[return-value]

    def value(self, prediction: Prediction, run: Run) -> float:
        """Return the value of a step.

        Raises:
            InputError: the step has none; or a closed form is asked what the compiler does.
        """
        if self.measure == "moved" and prediction.source == "analytic":
            raise InputError(
                "this puzzle asks what the compiler adds to the closed form, which therefore "
                "cannot judge it: use --source compiled"
            )
        found = MEASURES[self.measure].of(prediction, run)
        if found is None:
            raise InputError(f"{self.words}: this step has none")
        return float(found)

    def judge(self, prediction: Prediction, run: Run) -> "JudgedGoal":
        """Return this goal with the value of a step; InputError as of `value`."""
        memory = prediction.memory
        peak, capacity = (format_rate(n, "B") for n in (memory.peak, memory.capacity or 0.0))
        used = t("{peak} of {capacity}", peak=peak, capacity=capacity)
        detail = used if self.measure == "filled" else ""
        return JudgedGoal(self, self.value(prediction, run), detail)

    def is_reached(self, value: float) -> bool:
        """True if a value is within the limit."""
        return value <= self.limit if self.least is None else value >= self.limit

    def is_better(self, value: float, other: float) -> bool:
        """True if a value is better than another by more than versions differ."""
        if self.least is None:
            return value < other * (1 - AGREES)
        return value > other * (1 + AGREES)

    def show(self, value: float) -> str:
        """Return a value as text: `3.81 s`."""
        return MEASURES[self.measure].show(value)

    def __str__(self) -> str:
        """Return the limit as text: `step at most 3.95 s`."""
        said = t("{what} at most {limit}") if self.least is None else t("{what} at least {limit}")
        return said.format(what=self.words, limit=self.show(self.limit))


@dataclass(frozen=True)
class JudgedGoal:
    """A goal and the value of one step."""

    goal: Goal
    value: float
    detail: str = ""  # the figures that it is made of

    @property
    def reached(self) -> bool:
        return self.goal.is_reached(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Return goal, value and verdict as JSON has them."""
        limits = {"most": self.goal.most, "least": self.goal.least}
        stated = {name: value for name, value in limits.items() if value is not None}
        found = {"value": self.value, "reached": self.reached}
        return {"measure": self.goal.measure, **stated, **found}

    def __str__(self) -> str:
        """Return `step at most 3.95 s: 4.13 s, missed by 176 ms`."""
        gap = abs(self.value - self.goal.limit)
        in_points = self.goal.measure in ("filled", "mfu", "bubble", "waiting")  # shares
        words = t("{n:.1f} points", n=100 * gap) if in_points else self.goal.show(gap)
        verdict = t("reached") if self.reached else t("missed by {gap}", gap=words)
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.goal}: {self.goal.show(self.value)}{detail}, {verdict}"
