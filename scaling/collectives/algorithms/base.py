"""The interface of a collective algorithm, and the formulas that several of them share."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

import numpy as np

from scaling.program.ir import CollectiveKind

REDUCTIONS: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter")


@dataclass(frozen=True, eq=False)
class Boundary:
    """Members of groups on both sides of the links of a level: int arrays [classes]."""

    in_unit: np.ndarray  # members of the group in the member's unit
    in_region: np.ndarray  # members of the group in the region that the links serve
    units: np.ndarray  # units of the group in that region
    ranks: int  # members of a group
    innermost: bool = False  # the links of one chip, to chips that a switch may add for


@dataclass(frozen=True)
class LinkLoad:
    """Load of a collective on the busiest pool of links of a level."""

    share: float  # bytes over it per byte of the call
    groups: int = 0  # groups that use that pool at once
    units: int = 1  # units that one group joins within a parent, at most
    serial_steps: int = 0  # pieces that a member sends one after another; 0: all at once
    min_share: float | None = None  # the share that no order of steps gets below; None: `share`
    torus_hops: float | None = None  # on a torus, overlapped with the bytes; None: the algorithm's
    hops_per_message: int = 1  # links in a row of each of the algorithm's hops


class CollectiveAlgorithm(ABC):
    """The bytes an algorithm puts on each level, and how many of its hops wait for one another.

    Subclasses have no state: `scaling.collectives.algorithms.ALGORITHMS` holds one of each.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[CollectiveKind, ...]]
    in_switch: ClassVar[bool] = False  # needs switches that add up (NVLink SHARP)
    in_network: ClassVar[bool] = False  # needs switches between nodes that add up (SHARP)
    on_torus: ClassVar[bool] = False  # the links of a torus can run it

    def bytes_out(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """Bytes per byte of the call that each member sends out of its unit; float [classes]."""
        if kind == "all-to-all":
            return (at.in_region - at.in_unit) / at.ranks
        if kind == "broadcast":
            return 1 / at.in_unit
        return self.reduction_bytes(kind, at)

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """`bytes_out` of a reduction: here only the bytes that other units lack, every round."""
        return rounds(kind) * (1 - at.in_unit / at.in_region) / at.in_unit

    def hops(self, kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
        """Hops in each level that wait for one another: here walks through all members.

        Args:
            kind: one of `kinds`; a permute has one hop in each level.
            units: the most units that one group joins in a unit of each level, from the chip
                outwards: [8, 4] for eight chips of each of four nodes, [7, 2] for seven and one.
            ranks: members of a group.
        """
        if kind == "permute":
            return [float(n > 1) for n in units]
        left = [float(min(ranks, prod(units[i:]))) for i in range(len(units) + 1)]
        return [rounds(kind) * (inside - outside) for inside, outside in pairwise(left)]

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """Pieces that a member sends one after another; 0: all at once."""
        return 0

    def refusal(self, units: Sequence[int]) -> str:
        """Reason why groups that join so many units cannot run it; "" if they can."""
        return ""

    def is_considered(self, units: Sequence[int]) -> bool:
        """True if `auto` considers it for groups that join so many units in each level."""
        return True


def rounds(kind: CollectiveKind) -> int:
    """Number of times the data goes around: an all-reduce is a reduce-scatter and an all-gather."""
    return 2 if kind == "all-reduce" else 1


def nodes_joined(units: Sequence[int]) -> int:
    """The most units that a group joins in any level above the innermost; 1: it stays inside."""
    return max(units[1:], default=1)
