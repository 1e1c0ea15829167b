"""Algorithms of sends to peers: rings, level by level, everyone to everyone, and PAT."""

from collections.abc import Sequence
from math import log2

import numpy as np

from scaling.collectives.algorithms.base import REDUCTIONS, Boundary, CollectiveAlgorithm, rounds
from scaling.program.ir import CollectiveKind


class Ring(CollectiveAlgorithm):
    """One ring through all members passes pieces on; its channels take turns at a node's NICs.

    A ring crosses the boundary of each unit once and puts r (N-1)/N of the bytes on it. Most of
    its r (N - 1) hops stay inside the innermost level.
    """

    name = "ring"
    kinds = (*REDUCTIONS, "broadcast", "permute")
    on_torus = True

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """r (N-1)/N; if a group leaves the region, only part of its ring's hops stay inside."""
        stays = np.where(at.in_region < at.ranks, 1 - at.in_unit / at.in_region, 1.0)
        return rounds(kind) * (1 - 1 / at.ranks) * stays / at.in_unit

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """Every member passes on a piece of every other."""
        return rounds(kind) * (ranks - 1)


class OneWayRing(CollectiveAlgorithm):
    """All-to-alls on a ring that sends one way: members between two pass their pieces on.

    Over each link of N go the pieces, V/N each, of N (N-1)/2 pairs: half of an all-gather's bytes.
    Problem 10 of "How to Scale Your Model", chapter on sharded matrices (jax-ml/scaling-book,
    sharding.md, 2026-06). No library runs it: on request only.
    """

    name = "one-way-ring"
    kinds = ("all-to-all",)

    def bytes_out(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """(N-1)/2 out of each unit; fewer where a group leaves the region, as of a ring."""
        stays = np.where(at.in_region < at.ranks, 1 - at.in_unit / at.in_region, 1.0)
        return (at.ranks - 1) / 2 * stays / at.in_unit

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """One round for each distance."""
        return ranks - 1

    def is_considered(self, units: Sequence[int]) -> bool:
        """Never: its bytes are those of a picture, not of a library."""
        return False


class Hierarchical(CollectiveAlgorithm):
    """In every level a unit sends only what the other units lack: 1 - s/N.

    In an all-reduce each of U units sums an equal part, whatever its members: 2 (1 - 1/U).
    The bound of "How to Scale Your Model" (jax-ml/scaling-book, gpus.md, 2026-06). No GPU library
    runs it: considered with the ideal profile or on request.
    """

    name = "hierarchical"
    kinds = (*REDUCTIONS, "all-to-all", "broadcast")
    on_torus = True

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """1 - s/N; of an all-reduce 2 (1 - 1/U)."""
        if kind == "all-reduce":
            return 2 * (1 - 1 / at.units) / at.in_unit
        return super().reduction_bytes(kind, at)

    def hops(self, kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
        """A ring of the units in each level."""
        return [rounds(kind) * (n - 1.0) for n in units]


class Pairwise(CollectiveAlgorithm):
    """All-to-alls and permutes as sends and receives, one peer after another.

    A unit with s of the N members sends s (N - s)/N of what one member sends; a permute counts its
    own pairs (`scaling.collectives.contention`).
    """

    name = "pairwise"
    kinds = ("all-to-all", "permute")
    on_torus = True

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """One per peer."""
        return ranks - 1


class Pat(CollectiveAlgorithm):
    """The bytes of a ring in log2 N steps, with one GPU of a group in a node.

    Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
    (arXiv 2506.20252).
    """

    name = "pat"
    kinds = ("all-gather", "reduce-scatter")

    def hops(self, kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
        """The height of a binary tree in each level."""
        return [log2(n) for n in units]

    def refusal(self, units: Sequence[int]) -> str:
        """Needs one GPU of a group in a node."""
        if units[0] > 1:
            return f"pat runs with one GPU of a group in a node; here there are {units[0]}"
        return ""
