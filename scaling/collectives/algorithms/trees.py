"""Trees between nodes, and switches that add up: NVLink SHARP in an NVLink domain, SHARP outside.

A GPU sends its data up to the switch once and takes 1/N of the sum to pass on: (1 + 1/N) of an
all-reduce. Restated from NVIDIA/nccl 2.30.7, src/graph/tuning.cc (2026-06).
"""

from collections.abc import Sequence
from math import log2
from typing import ClassVar

import numpy as np

from scaling.collectives.algorithms.base import (
    REDUCTIONS,
    Boundary,
    CollectiveAlgorithm,
    nodes_joined,
)
from scaling.program.ir import CollectiveKind


def tree_bytes(at: Boundary) -> np.ndarray:
    """All bytes once between two units, else twice: each unit is inner node of one of two trees."""
    return np.where(at.units == 2, 1.0, 2.0) / at.in_unit


class Tree(CollectiveAlgorithm):
    """Double binary trees between nodes: half of the bytes up and down each; a chain in each node.

    Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan" (2009).
    """

    name = "tree"
    kinds = ("all-reduce",)

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """As `tree_bytes`."""
        return tree_bytes(at)

    def hops(self, kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
        """Up and down the chain of a node, and the height of the tree outside."""
        return [2.0 * (units[0] - 1), *(2 * log2(n) for n in units[1:])]

    def is_considered(self, units: Sequence[int]) -> bool:
        """Between nodes: inside one it is a chain, a ring's bytes and hops in one direction."""
        return nodes_joined(units) > 1


class Nvls(CollectiveAlgorithm):
    """Reductions in the NVSwitches of one NVLink domain; an all-reduce sends (1 + 1/N)."""

    name = "nvls"
    kinds = REDUCTIONS
    in_switch = True
    hops_per_doubling = 2.0  # between nodes: up and down a tree

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """(1 + 1/N) of an all-reduce inside the domain, else `outside_bytes`."""
        if kind == "all-reduce" and at.innermost:
            return (1 + at.in_unit / at.in_region) / at.in_unit
        return self.outside_bytes(kind, at)

    def outside_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """Bytes between nodes, and of an all-gather or reduce-scatter anywhere."""
        return super().reduction_bytes(kind, at)

    def hops(self, kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
        """One hop to the switch and back, and the height of the tree outside."""
        return [float(units[0] > 1), *(self.hops_per_doubling * log2(n) for n in units[1:])]

    def refusal(self, units: Sequence[int]) -> str:
        """Needs several GPUs of a group in one NVLink domain."""
        if units[0] == 1:
            return f"{self.name} needs several GPUs of a group in a node; here there is 1"
        return self.outside_refusal(nodes_joined(units))

    def outside_refusal(self, nodes: int) -> str:
        """Reason why groups that join `nodes` nodes cannot run it; "" if they can."""
        if nodes == 1:
            return ""
        return "nvls stays inside one NVLink domain; nvls-tree or sharp go further"


class NvlsTree(Nvls):
    """NVLS inside each NVLink domain, double binary trees between them."""

    name = "nvls-tree"
    kinds: ClassVar[tuple[CollectiveKind, ...]] = ("all-reduce",)

    def outside_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """As `tree_bytes`."""
        return tree_bytes(at)

    def outside_refusal(self, nodes: int) -> str:
        """Needs several nodes."""
        return f"{self.name} joins several nodes; inside one it is nvls" if nodes == 1 else ""


class Sharp(NvlsTree):
    """NVLS inside each NVLink domain; the network's switches add up between them."""

    name = "sharp"
    kinds = REDUCTIONS
    in_network = True
    hops_per_doubling = 1.0  # the switches answer at once

    def outside_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """Each byte of an all-reduce once."""
        if kind == "all-reduce":
            return 1 / at.in_unit
        return CollectiveAlgorithm.reduction_bytes(self, kind, at)

    def is_considered(self, units: Sequence[int]) -> bool:
        """Only where a job asks for it: NCCL leaves the network's switches alone by default."""
        return False
