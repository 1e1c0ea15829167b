"""Level by level: the bound that "How to Scale Your Model" uses. No GPU library runs it."""

from collections.abc import Sequence

import numpy as np

from scaling.collectives.algorithms.base import (
    REDUCTIONS,
    Boundary,
    CollectiveAlgorithm,
    missing_bytes,
    rounds,
)
from scaling.program.ir import CollectiveKind


class Hierarchical(CollectiveAlgorithm):
    """In every level a unit sends only what the other units lack: r (1 - s/N).

    jax-ml/scaling-book, gpus.md (2026-06). Considered with the ideal profile or on request.
    """

    name = "hierarchical"
    kinds = (*REDUCTIONS, "all-to-all", "broadcast")
    on_torus = True

    def reduction_bytes(self, kind: CollectiveKind, at: Boundary) -> np.ndarray:
        """What the others lack."""
        return missing_bytes(kind, at)

    def hops(self, kind: CollectiveKind, units: Sequence[int]) -> list[float]:
        """A ring of the units in each level."""
        return [rounds(kind) * (n - 1.0) for n in units]
