"""Why a collective runs by the algorithm and protocol that it does, beside what else could run.

The algorithm and protocol that take least by the fitted figures are chosen. Where the machine has
NCCL, its own table says what NCCL would choose by itself.
"""

from dataclasses import dataclass
from typing import Any, Literal

from scaling.collectives.cost import CollectiveCost
from scaling.collectives.nccl.ranking import NcclChoice

FITTED = {"calibrated": "fitted"}  # what times by figures of a grade are called; else the grade


@dataclass(frozen=True)
class Alternative:
    """A way that was open and not taken."""

    algorithm: str
    protocol: str
    time: float  # s


@dataclass(frozen=True)
class Chosen:
    """How the way of one size was chosen."""

    by: Literal["fastest", "measured", "none"]  # none: nobody else takes part
    why: str  # in words
    alternatives: tuple[Alternative, ...]  # fastest first
    nccl: NcclChoice | None = None  # None: no NCCL there, or it does not rank such a collective


def chosen(cost: CollectiveCost, size: int, grade: str, pick: NcclChoice | None) -> Chosen:
    """What `cost` of one size says of its choice.

    Args:
        cost: of that size alone.
        size: bytes.
        grade: of the figures.
        pick: NCCL's own.
    """
    if not cost.ways:
        measured = cost.algorithm == "measured"
        return Chosen("measured" if measured else "none", cost.bottleneck, (), pick)
    taken = (cost.algorithm, cost.protocol)
    others = [
        Alternative(way.algorithm, way.protocol, float(way.seconds(float(size))))
        for way in cost.ways
        if (way.algorithm, way.protocol) != taken
    ]
    fastest = f"fastest of {len(others) + 1} by {FITTED.get(grade, grade)} time"
    if not others:
        fastest = "the only way that there are figures of"
    ordered = tuple(sorted(others, key=lambda other: other.time))
    return Chosen("fastest", fastest, ordered, pick)


def chosen_dict(document: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: without NCCL where there is none."""
    return {key: value for key, value in document.items() if key != "nccl" or value is not None}
