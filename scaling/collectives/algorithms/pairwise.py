"""Point to point: every member sends to every other itself."""

from scaling.collectives.algorithms.base import CollectiveAlgorithm
from scaling.program.ir import CollectiveKind


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
