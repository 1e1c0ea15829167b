"""Double binary trees between nodes, with a chain through each node."""

from collections.abc import Sequence
from math import log2

import numpy as np

from scaling.collectives.algorithms.base import Boundary, CollectiveAlgorithm, nodes_joined
from scaling.program.ir import CollectiveKind


def tree_bytes(at: Boundary) -> np.ndarray:
    """All bytes once between two units, else twice: each unit is inner node of one of two trees."""
    return np.where(at.units == 2, 1.0, 2.0) / at.inside


class Tree(CollectiveAlgorithm):
    """Half of the bytes up and down each of two trees; a unit is a leaf in one of them.

    Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    scan" (2009); NVIDIA/nccl 2.30.7, src/graph/tuning.cc (2026-06).
    """

    name = "tree"
    kinds = ("all-reduce",)

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """As `tree_bytes`."""
        return tree_bytes(at)

    def hops(self, kind: CollectiveKind, units: Sequence[int]) -> list[float]:
        """Up and down the chain of a node, and the height of the tree outside."""
        return [2.0 * (units[0] - 1), *(2 * log2(n) for n in units[1:])]

    def is_considered(self, units: Sequence[int]) -> bool:
        """Between nodes: inside one it is a chain, a ring's bytes and hops in one direction."""
        return nodes_joined(units) > 1
