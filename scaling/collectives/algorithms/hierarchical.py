"""Level by level: the bound that "How to Scale Your Model" uses. No GPU library runs it."""

from collections.abc import Sequence

from scaling.collectives.algorithms.base import REDUCTIONS, CollectiveAlgorithm, rounds
from scaling.program.ir import CollectiveKind


class Hierarchical(CollectiveAlgorithm):
    """In every level a unit sends only what the other units lack: r (1 - s/N).

    jax-ml/scaling-book, gpus.md (2026-06). Considered with the ideal profile or on request.
    """

    name = "hierarchical"
    kinds = (*REDUCTIONS, "all-to-all", "broadcast")
    on_torus = True

    def hops(self, kind: CollectiveKind, units: Sequence[int]) -> list[float]:
        """A ring of the units in each level."""
        return [rounds(kind) * (n - 1.0) for n in units]
