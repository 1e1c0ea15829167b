"""Reasons for the algorithm of a collective, and what else could run.

The candidate with the least time by the fitted figures is taken. Where the machine has NCCL, its
own table says what NCCL would take by itself.
"""

from dataclasses import dataclass
from typing import Literal

from scaling.collectives.cost import CollectiveCost
from scaling.collectives.nccl.ranking import NcclChoice

FITTED = {"calibrated": "fitted", "extrapolated": "fitted"}  # times by figures of a grade


@dataclass(frozen=True)
class Alternative:
    """A candidate that was not taken."""

    algorithm: str
    time: float  # s


@dataclass(frozen=True)
class AlgorithmChoice:
    """The selection of the algorithm of one call, with its reason."""

    by: Literal["fastest", "measured", "none"]  # none: a group of one
    why: str  # a phrase
    alternatives: tuple[Alternative, ...]  # fastest first
    nccl: NcclChoice | None = None  # None: no NCCL there, or it does not rank such a collective


def algorithm_choice(
    cost: CollectiveCost, size: int, grade: str, nccl: NcclChoice | None
) -> AlgorithmChoice:
    """The choice behind a cost of one size (bytes), by figures of a grade."""
    if not cost.candidates:
        by: Literal["measured", "none"] = "measured" if cost.algorithm == "measured" else "none"
        return AlgorithmChoice(by, cost.bottleneck, (), nccl)
    others = [
        Alternative(other.algorithm, float(other.seconds(float(size))))
        for other in cost.candidates
        if other.algorithm != cost.algorithm
    ]
    why = f"fastest of {len(others) + 1} by {FITTED.get(grade, grade)} time"
    if not others:
        why = "the only candidate that there are figures of"
    ordered = tuple(sorted(others, key=lambda other: other.time))
    return AlgorithmChoice("fastest", why, ordered, nccl)
