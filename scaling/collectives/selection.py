"""Why a collective runs by the algorithm and protocol that it does, beside what else could run.

What takes least by the fitted figures is chosen, unless NCCL's own choice was asked for. NCCL's
table, where the machine has NCCL, says what that software would choose by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.collectives.cost import CollectiveCost
from scaling.collectives.nccl.choice import ranking
from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind

FITTED = {"calibrated": "fitted"}  # what times by figures of a grade are called; else the grade


@dataclass(frozen=True)
class Alternative:
    """A way that was open and not taken."""

    algorithm: str
    protocol: str
    time: float  # s


@dataclass(frozen=True)
class NcclPick:
    """What NCCL ranks first."""

    version: str
    algorithm: str
    protocol: str
    estimate: float  # s, by its own table: for ranking, not a prediction


@dataclass(frozen=True)
class Chosen:
    """How the way of one size was chosen."""

    by: Literal["fastest", "nccl", "measured", "none"]  # none: nobody else takes part
    why: str  # in words
    alternatives: tuple[Alternative, ...]  # fastest first
    nccl: NcclPick | None = None  # None: no NCCL there, or it does not rank such a collective


def chosen(cost: CollectiveCost, size: int, grade: str, pick: NcclPick | None) -> Chosen:
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
    by_nccl = cost.why.startswith("as NCCL")
    ordered = tuple(sorted(others, key=lambda other: other.time))
    return Chosen("nccl" if by_nccl else "fastest", cost.why or fastest, ordered, pick)


def nccl_picks(
    kind: CollectiveKind,
    sizes: Sequence[int],
    groups: np.ndarray,
    cluster: Cluster,
    version: str = "",
) -> list[NcclPick | None]:
    """What NCCL would take for every size; None where it has no say."""
    found = ranking(kind, np.array(sizes, float), groups, cluster, version)
    if found is None:
        return [None] * len(sizes)
    pairs = [found.pairs[number] for number in found.chosen()]
    least = found.seconds.min(axis=0).tolist()
    return [
        NcclPick(found.version, algorithm, protocol, estimate)
        for (algorithm, protocol), estimate in zip(pairs, least, strict=True)
    ]


def chosen_dict(document: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: without NCCL where there is none."""
    return {key: value for key, value in document.items() if key != "nccl" or value is not None}
