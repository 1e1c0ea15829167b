"""Meshes and variants of anybody's step that were compiled, as plain data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scaling.meshes.cluster import Cluster
from scaling.simulate.prediction import Prediction


@dataclass(frozen=True)
class StepPlan:
    """One mesh with one variant: its prediction, or why there is none."""

    rank: int
    mesh: str  # axis=size,...; outermost first
    variant: str  # "" where none was asked for
    prediction: Prediction | None
    why: str  # what binds the first one; what the others lose to it; what is wrong

    def row(self) -> dict[str, Any]:
        """Return its main figures, in SI units, by name; None where they are not known."""
        p = self.prediction
        high = math.inf if p is None else float(p.step_time_high)
        return {
            "rank": self.rank,
            "mesh": self.mesh,
            "variant": self.variant,
            "step_time": p and float(p.step_time),
            "step_time_low": p and float(p.step_time_low),
            "step_time_high": high if math.isfinite(high) else None,
            "tokens_per_second": p and p.tokens_per_second,
            "memory": p and float(p.memory.peak),
            "capacity": p and p.memory.capacity,
            "fits": p and p.memory.fits,
            "why": self.why,
        }


@dataclass(frozen=True)
class StepPlans:
    """Meshes and variants of a step, the best first, then what does not fit and what fails."""

    name: str
    cluster: Cluster
    plans: tuple[StepPlan, ...]
    left_out: Mapping[str, float]  # mesh that was not compiled -> s of its step, first ranking
    ranked_by: str  # the first ranking; "": every mesh was compiled
    seconds: float  # that all took

    @property
    def best(self) -> StepPlan | None:
        """The first plan; None where nothing fits."""
        first = self.plans[0]
        fits = first.prediction is not None and first.prediction.memory.fits is not False
        return first if fits else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a table of the plans, best first: `pandas.DataFrame(plans.rows())`."""
        return [plan.row() for plan in self.plans]
