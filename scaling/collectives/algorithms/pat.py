"""PAT: parallel aggregated trees for all-gathers and reduce-scatters between nodes."""

from collections.abc import Sequence
from math import log2

from scaling.collectives.algorithms.base import CollectiveAlgorithm
from scaling.program.ir import CollectiveKind


class Pat(CollectiveAlgorithm):
    """The bytes of a ring in log2 N steps, with one GPU of a group in a node.

    Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
    (arXiv 2506.20252).
    """

    name = "pat"
    kinds = ("all-gather", "reduce-scatter")

    def hops(self, kind: CollectiveKind, units: Sequence[int]) -> list[float]:
        """The height of a binary tree in each level."""
        return [log2(n) for n in units]

    def refusal(self, units: Sequence[int]) -> str:
        """Needs one GPU of a group in a node."""
        if units[0] > 1:
            return f"pat runs with one GPU of a group in a node; here there are {units[0]}"
        return ""
