"""The algorithm and protocol that NCCL itself would take: the lowest of its own estimates.

NCCL's estimates rank; the times of a prediction come from the figures of a profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.collectives.nccl.communicator import communicator
from scaling.collectives.nccl.constants import VERSION, Protocol
from scaling.collectives.nccl.tuning import estimates
from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind


@dataclass(frozen=True)
class NcclChoice:
    """What NCCL ranks first at one size."""

    algorithm: str
    protocol: Protocol
    estimate: float  # s, by NCCL's table: for ranking, no prediction
    version: str = VERSION


def nccl_choices(
    kind: CollectiveKind,
    sizes: Sequence[float] | np.ndarray,
    groups: np.ndarray,
    cluster: Cluster,
    algorithm: str = "auto",
) -> list[NcclChoice] | None:
    """NCCL's first choice at every size; None where NCCL ranks nothing.

    Args:
        kind: all-to-alls and permutes are sends, which NCCL does not rank; broadcasts are rings.
        sizes: bytes of the calls.
        groups: device ids, [groups, members].
        cluster: without NVIDIA GPUs there is no NCCL.
        algorithm: the one that NCCL is restricted to, or "auto".
    """
    comm = communicator(groups, cluster)
    if comm is None:
        return None
    ranked = estimates(kind, np.asarray(sizes, float), comm)
    ranked = {pair: times for pair, times in ranked.items() if algorithm in ("auto", pair[0])}
    if not ranked:
        return None
    pairs, seconds = list(ranked), np.array(list(ranked.values()))
    first = np.argmin(seconds, axis=0)  # of equal estimates the first, as NCCL does
    chosen = [(*pairs[i], float(seconds[i, j])) for j, i in enumerate(first.tolist())]
    return [NcclChoice(algorithm, protocol, estimate) for algorithm, protocol, estimate in chosen]
