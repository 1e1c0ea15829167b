"""The algorithm and protocol that NCCL itself would take: the lowest of its own estimates.

    seconds = latency + bytes / bandwidth       N ranks on M nodes, p = N / M

    ring       latency   base + (steps - crossing) x inside + crossing x network
               bandwidth channels x speed x N / steps       steps = 2 (N - 1) or N - 1
    tree       latency   base + 2 ((p - 1) x inside + log2 M x network)
               bandwidth half of channels x speed, times a correction by size
    nvls       latency   inside
               bandwidth channels x speed x efficiency x (channels - 1) / channels
    nvls-tree  latency   inside + 2 log2 M x network
    pat        latency   base + log2 M x network / 3.5 + 2.8 N       gathers over single GPUs
               bandwidth 0.75 x channels x speed

The model ranks; as a prediction of times it is far off (experiments/published), and the times of a
prediction come from the fits of a profile. It is tested against tables that NCCL printed. Left out:
broadcasts, which have rings only; CollNet (SHARP over the network needs a plugin and
NCCL_COLLNET_ENABLE=1); Power CPUs; several calls in one launch; fp8; latencies that a NIC states of
itself (InfiniBand states none).

Source: NVIDIA/nccl, tag v2.30.7-1, commit 73cf112295c33aee2b895f329f592f2a9b4b0f97,
src/graph/tuning.cc and src/include/device.h. Microseconds and GB/s (1e9 bytes/s).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Literal, get_args

import numpy as np

from scaling.collectives.algorithms.base import rounds
from scaling.collectives.nccl.channels import AMPERE, BLACKWELL, GB, Communicator, communicator
from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind, Number

US = 1e-6
VERSION = "2.30.7"

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

Row = tuple[float, float, float]  # one figure each for LL, LL128, Simple
# A cap: for Volta and before, Ampere, Hopper, Blackwell, figures on one node, two nodes, and more.
Cap = tuple[Row, ...]

# Latencies in us: of one call, and of one step over NVLink, PCIe and the network.
NONE: Row = (0, 0, 0)
LATENCIES: dict[str, tuple[Row, Row, Row, Row]] = {
    "tree": ((6.8, 14, 8.4), (0.6, 1.25, 4), (1, 1.9, 4), (5, 8.5, 14)),
    "ring": ((6.6, 14, 8.4), (0.6, 1.9, 3.4), (1, 2.5, 5.7), (2.7, 4, 14)),
    "nvls": (NONE, (0, 0, 25), NONE, (0, 0, 18)),
    "nvls-tree": (NONE, (0, 0, 25), NONE, (0, 0, 20.9)),
    "pat": ((8, 8, 8), (0, 0, 4), (0, 0, 4), (0, 0, 14)),
}
NETWORK_POST, NETWORK_POST_AMD = 1.0, 2.0  # us of one post to the network, by the CPU
SIMPLE_POSTS = 3  # posts of one piece under Simple
PLATEAU, PLATEAU_VOLTA = 1.4, 1.9  # x latency of Simple rings between nodes, for large pieces
PLATEAU_PIECE = 64  # bytes per channel and rank from which the plateau holds
PAT_DEPTH, PAT_RANK = 3.5, 2.8  # steps of PAT in one network latency; us per rank

# Bandwidth limits in GB/s
LL_MOST: Cap = ((39, 39, 20.4), (87.7, 22.5, 19), (141, 45, 35), (282, 90, 70))  # all channels
RING_LL128: Cap = ((20, 20, 20), (20, 20, 20), (36.7, 36.7, 36.7), (40, 40, 40))  # one channel
TREE_LL128: Cap = ((20, 20, 20), (20, 20, 20), (36.7, 36.7, 29), (55.6, 31.67, 20))
TREE_MOST: Cap = ((26.5, 18.5, 10), (24, 23.6, 17.8), (38.7, 41.4, 36), (70, 42.8, 24))
NVLS_TREE_MOST: Cap = ((26.5, 18.5, 10), (24, 23.6, 17.8), (0, 57.7, 45.5), (0, 96, 80))
# Fractions of the channels' bandwidth
RING_LL = 0.5
LL128_SHARE = 0.92  # 120 of 128 bytes are payload
TREE_SHARE, TREE_LL = 0.92, 1 / 3.8
TREE_LL128_ONE_NODE, TREE_LL128_NODES = 7 / 9, 120 / 128
TREE_ONE_GPU = 0.85  # with one GPU per node, which cannot split the tree over two
NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)  # per generation
PAT_SHARE = 0.75
# Trees lack bandwidth at medium sizes: a factor for every power of two from 64 bytes on.
CORRECTION_START = 64  # bytes
TREE_CORRECTIONS, NVLS_TREE_CORRECTIONS = 23, 24  # how many of the factors hold
CORRECTION_TENTHS: dict[Protocol, tuple[int, ...]] = {
    "LL": (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10),
    "LL128": (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10),
    "Simple": (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9),
}


def cap_of(cap: Cap, generation: int, nodes: int) -> float:
    """Figure of a cap for one generation of GPUs on so many nodes."""
    return cap[generation][min(nodes, 3) - 1]


Pair = tuple[str, Protocol]
GATHERS: tuple[CollectiveKind, ...] = ("all-gather", "reduce-scatter")
KINDS: tuple[CollectiveKind, ...] = ("all-reduce", *GATHERS)
Bandwidth = Callable[[CollectiveKind, Protocol, Communicator], float]


@dataclass(frozen=True)
class NcclChoice:
    """The pair that NCCL ranks first at one size."""

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
    """NCCL's first choice at every size in bytes; None where NCCL ranks nothing.

    NCCL ranks KINDS on NVIDIA GPUs, all algorithms ("auto") or the one that it is restricted to.
    """
    comm = communicator(groups, cluster)
    if comm is None:
        return None
    every = estimates(kind, np.asarray(sizes, float), comm)
    ranked = {pair: times for pair, times in every.items() if algorithm in ("auto", pair[0])}
    if not ranked:
        return None
    pairs, seconds = list(ranked), np.array(list(ranked.values()))
    first = np.argmin(seconds, axis=0)  # of equal estimates the first, as NCCL does
    return [
        NcclChoice(pairs[i][0], pairs[i][1], float(seconds[i, j]))
        for j, i in enumerate(first.tolist())
    ]


def estimates(kind: CollectiveKind, bytes: Number, comm: Communicator) -> dict[Pair, np.ndarray]:
    """Seconds of every (algorithm, protocol) that can run, in NCCL's order; empty but for KINDS.

    `bytes`: the buffer of an all-reduce, the unsharded total of a gather or scatter.
    """
    sizes = np.asarray(bytes, float)
    rates = bandwidths(kind, comm)
    return {pair: _seconds(kind, pair, sizes, rate, comm) for pair, rate in rates.items()}


def bandwidths(kind: CollectiveKind, comm: Communicator) -> dict[Pair, float]:
    """GB/s of every pair that can run: bytes of the call per second."""
    if kind not in KINDS:
        return {}
    protocols = [p for p in PROTOCOLS if p != "LL128" or comm.ll128]
    rules = _bandwidths(comm).items()
    rates = {(a, p): rule(kind, p, comm) for a, rule in rules for p in protocols}
    return {pair: rate for pair, rate in rates.items() if rate > 0}


def latency(kind: CollectiveKind, pair: Pair, comm: Communicator) -> float:
    """Microseconds of a call without bytes."""
    algorithm, protocol = pair
    column = PROTOCOLS.index(protocol)
    base, nvlink, pcie, network = (row[column] for row in LATENCIES[algorithm])
    inside = nvlink if comm.nvlink else pcie
    if comm.ranks_per_node == 1:  # NCCL counts a tree's step over the network for every algorithm
        network = LATENCIES["tree"][-1][column]
    depth = int(log2(comm.nodes))
    if algorithm == "ring":
        steps, crossing = (rounds(kind) * (n - 1) for n in (comm.ranks, comm.nodes))
        if comm.nodes > 1:
            post = NETWORK_POST_AMD if comm.cpu == "amd" else NETWORK_POST
            inside = max(inside, post * (SIMPLE_POSTS if protocol == "Simple" else 1))
        return base + ((steps - crossing) * inside + crossing * network)
    if algorithm == "tree":
        return base + 2 * ((comm.ranks // comm.nodes - 1) * inside + depth * network)
    if algorithm == "pat":
        return base + depth * network / PAT_DEPTH + PAT_RANK * comm.ranks
    return base + inside + (2 * depth * network if algorithm == "nvls-tree" else 0.0)


def _seconds(
    kind: CollectiveKind, pair: Pair, sizes: np.ndarray, rate: float, comm: Communicator
) -> np.ndarray:
    waiting = np.full(sizes.shape, latency(kind, pair, comm))
    if pair == ("ring", "Simple") and comm.nodes > 1 and kind == "all-reduce":
        plateau = PLATEAU if comm.capability >= AMPERE else PLATEAU_VOLTA
        piece = sizes // (comm.connected_channels * comm.ranks)
        waiting = np.where(piece >= PLATEAU_PIECE, plateau * waiting, waiting)
    return US * waiting + sizes / (GB * rate * _corrections(pair, sizes, comm))


def _corrections(pair: Pair, sizes: np.ndarray, comm: Communicator) -> np.ndarray:
    """Factors on the bandwidth at some sizes; 1 outside those that hold for the algorithm."""
    algorithm, protocol = pair
    x86_blackwell = comm.capability >= BLACKWELL and comm.cpu in ("intel", "amd")
    held = {"tree": TREE_CORRECTIONS, "nvls-tree": NVLS_TREE_CORRECTIONS * x86_blackwell}
    known, tenths = held.get(algorithm, 0), np.array(CORRECTION_TENTHS[protocol])
    power = np.floor(np.log2(np.maximum(sizes, 1) / CORRECTION_START)).astype(int)
    holds = (power >= 0) & (power < known)
    return np.where(holds, tenths[np.where(holds, power, 0)] / 10, 1.0)


def _ring_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    count = comm.rings.count
    bus = count * (comm.rings.inside if comm.nodes <= 2 else comm.rings.outside)
    if protocol == "LL":
        bus = min(_ll_most(comm), RING_LL * bus)
    if protocol == "LL128":
        bus = min(LL128_SHARE * bus, count * cap_of(RING_LL128, comm.generation, comm.nodes))
    return bus * comm.ranks / (rounds(kind) * (comm.ranks - 1))


def _tree_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    if kind != "all-reduce":
        return 0.0
    count, generation, nodes = comm.trees.count, comm.generation, comm.nodes
    bus = count * (comm.trees.inside if nodes <= 2 else comm.trees.outside)
    bus = min(TREE_SHARE * bus, count * cap_of(TREE_MOST, generation, nodes))
    if protocol == "LL":
        bus = min(TREE_LL * bus, _ll_most(comm))
    if protocol == "LL128":
        share = TREE_LL128_ONE_NODE if nodes == 1 else TREE_LL128_NODES
        bus = min(share * bus, count * cap_of(TREE_LL128, generation, nodes))
    return bus / 2 * (TREE_ONE_GPU if comm.ranks_per_node == 1 else 1.0)


def _ll_most(comm: Communicator) -> float:
    """Limit of LL: on one node by its GPUs; on several by the CPU (AMD counts as Ampere's row)."""
    generation = comm.generation if comm.nodes == 1 else int(comm.cpu == "amd")
    return cap_of(LL_MOST, generation, comm.nodes)


def _switch_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    """Sums in the switch of one node, or in those of several, which a tree joins."""
    if protocol != "Simple" or comm.nvls is None:
        return 0.0
    count, limit, reduces = comm.nvls.count, comm.nvls.outside, kind == "all-reduce"
    if comm.nodes > 1:
        if not reduces:
            return 0.0
        cap = cap_of(NVLS_TREE_MOST, comm.generation, comm.nodes)
        limit = min(limit * (2 if comm.nodes == 2 else 1), cap)
    within = comm.nvls.inside * NVLS_EFFICIENCY[comm.generation] * (count - 1) / count
    within *= 2 if reduces else (comm.ranks_per_node - 1) / comm.ranks_per_node
    bus = count * min(within, limit)
    return bus * comm.ranks / (2 * (comm.ranks - 1)) if reduces else bus


def _pat_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    lone = comm.ranks_per_node == 1 and comm.nodes > 1
    if protocol != "Simple" or kind not in GATHERS or not lone:
        return 0.0
    speed = comm.trees.inside if comm.nodes <= 2 else comm.trees.outside
    return PAT_SHARE * comm.trees.count * speed


def _bandwidths(comm: Communicator) -> dict[str, Bandwidth]:
    """The rule of each algorithm, in NCCL's order: of two equal estimates the first is taken."""
    switch = "nvls" if comm.nodes == 1 else "nvls-tree"
    return {
        "tree": _tree_bandwidth,
        "ring": _ring_bandwidth,
        switch: _switch_bandwidth,
        "pat": _pat_bandwidth,
    }
