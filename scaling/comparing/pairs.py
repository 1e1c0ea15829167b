"""Figures predicted and measured: of a step, of one collective, of one kernel, of one class.

error = predicted / measured - 1
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pair:
    """One figure, predicted and measured."""

    predicted: float | None
    measured: float | None
    comparable: bool = True

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None where either is missing, zero or not comparable."""
        if self.predicted is None or not self.measured or not self.comparable:
            return None
        return self.predicted / self.measured - 1

    def to_dict(self) -> dict[str, float | None]:
        """The pair as JSON has it."""
        return {"predicted": self.predicted, "measured": self.measured, "error": self.error}


@dataclass(frozen=True)
class CollectivePair:
    """All calls of one collective in one step, seconds."""

    kind: str
    axis: str
    bytes: float  # of one call
    seconds: Pair
    step_bytes: Pair  # of all calls in one step; measured: the recorded calls
    instructions: Mapping[str, Pair] = field(default_factory=dict)  # the same seconds, each alone

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON has it."""
        return {
            **{"kind": self.kind, "axis": self.axis, "bytes": self.bytes},
            **self.seconds.to_dict(),
            "step_bytes": self.step_bytes.to_dict(),
            "instructions": {name: pair.to_dict() for name, pair in self.instructions.items()},
        }


@dataclass(frozen=True)
class KernelPair:
    """All calls of one kernel in one step, seconds; `calls` as measured."""

    name: str
    origin: str
    calls: float
    seconds: Pair

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON has it."""
        named = {"name": self.name, "origin": self.origin, "calls": self.calls}
        return named | self.seconds.to_dict()


@dataclass(frozen=True)
class StepPair:
    """Step time with the spread of what was measured (quartile distance over median)."""

    seconds: Pair
    spread: float | None
    steps: int
