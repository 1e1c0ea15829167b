"""Rings: every member passes pieces on to the next."""

import numpy as np

from scaling.collectives.algorithms.base import REDUCTIONS, Boundary, CollectiveAlgorithm, rounds
from scaling.program.ir import CollectiveKind


class Ring(CollectiveAlgorithm):
    """One ring through all members; its channels take turns at the NICs of a node.

    A ring crosses the boundary of each unit once and puts r (N-1)/N of the bytes on it. Of its
    r (N - 1) hops most stay inside the innermost level.
    """

    name = "ring"
    kinds = (*REDUCTIONS, "broadcast", "permute")
    on_torus = True

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """r (N-1)/N; if a group leaves the region, only part of its ring's hops stay inside."""
        stays = np.where(at.within < at.ranks, 1 - at.inside / at.within, 1.0)
        return rounds(kind) * (1 - 1 / at.ranks) * stays / at.inside

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """Every member passes on a piece of every other."""
        return rounds(kind) * (ranks - 1)
