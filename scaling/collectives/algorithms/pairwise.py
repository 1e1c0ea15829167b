"""Point to point: every member sends to every other itself."""

from collections.abc import Sequence

import numpy as np

from scaling.collectives.algorithms.base import (
    Boundary,
    CollectiveAlgorithm,
    missing_bytes,
    ring_hops,
)
from scaling.program.ir import CollectiveKind


class Pairwise(CollectiveAlgorithm):
    """All-to-alls and permutes as sends and receives, one peer after another.

    A unit with s of the N members sends s (N - s)/N of what one member sends.
    """

    name = "pairwise"
    kinds = ("all-to-all", "permute")
    on_torus = True

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """A permute counts its own pairs (`scaling.collectives.contention`)."""
        return missing_bytes(kind, at)

    def hops(self, kind: CollectiveKind, units: Sequence[int]) -> list[float]:
        """One per peer."""
        return ring_hops(kind, units)

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """One per peer."""
        return ranks - 1
