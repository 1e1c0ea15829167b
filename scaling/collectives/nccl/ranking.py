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
prediction come from the fits of a profile. Source: NVIDIA/nccl 2.30.7, src/graph/tuning.cc; tested
against tables that NCCL printed. Left out: broadcasts, which have rings only; CollNet (SHARP over
the network needs a plugin and NCCL_COLLNET_ENABLE=1); Power CPUs; several calls in one launch; fp8;
latencies that a NIC states of itself (InfiniBand states none).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from scaling.collectives.nccl import constants as c
from scaling.collectives.nccl.communicator import Communicator, communicator
from scaling.collectives.nccl.constants import Protocol, cap_of, correction
from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind, Number

Pair = tuple[str, Protocol]
GATHERS: tuple[CollectiveKind, ...] = ("all-gather", "reduce-scatter")
KINDS: tuple[CollectiveKind, ...] = ("all-reduce", *GATHERS)
Bandwidth = Callable[[CollectiveKind, Protocol, Communicator], float]
US, GB = 1e-6, 1e9


@dataclass(frozen=True)
class NcclChoice:
    """The pair that NCCL ranks first at one size."""

    algorithm: str
    protocol: Protocol
    estimate: float  # s, by NCCL's table: for ranking, no prediction
    version: str = c.VERSION


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
    protocols = [p for p in c.PROTOCOLS if p != "LL128" or comm.ll128]
    rules = _bandwidths(comm).items()
    rates = {(a, p): rule(kind, p, comm) for a, rule in rules for p in protocols}
    return {pair: rate for pair, rate in rates.items() if rate > 0}


def latency(kind: CollectiveKind, pair: Pair, comm: Communicator) -> float:
    """Microseconds of a call without bytes."""
    algorithm, protocol = pair
    column = c.PROTOCOLS.index(protocol)
    base, nvlink, pcie, network = (row[column] for row in c.LATENCIES[algorithm])
    inside = nvlink if comm.nvlink else pcie
    if comm.ranks_per_node == 1:  # NCCL counts a tree's step over the network for every algorithm
        network = c.LATENCIES["tree"][-1][column]
    depth = int(log2(comm.nodes))
    if algorithm == "ring":
        return base + _ring_latency(kind, protocol, comm, inside, network)
    if algorithm == "tree":
        return base + 2 * ((comm.ranks // comm.nodes - 1) * inside + depth * network)
    if algorithm == "pat":
        return base + depth * network / c.PAT_DEPTH + c.PAT_RANK * comm.ranks
    return base + inside + (2 * depth * network if algorithm == "nvls-tree" else 0.0)


def _seconds(
    kind: CollectiveKind, pair: Pair, sizes: np.ndarray, rate: float, comm: Communicator
) -> np.ndarray:
    algorithm, protocol = pair
    waiting = np.full(sizes.shape, latency(kind, pair, comm))
    if pair == ("ring", "Simple") and comm.nodes > 1 and kind == "all-reduce":
        plateau = c.PLATEAU if comm.capability >= c.AMPERE else c.PLATEAU_VOLTA
        piece = sizes // (comm.connected_channels * comm.ranks)
        waiting = np.where(piece >= c.PLATEAU_PIECE, plateau * waiting, waiting)
    exponents = np.floor(np.log2(np.maximum(sizes, 1) / c.CORRECTION_START)).astype(int)
    known = _known_corrections(algorithm, comm)
    factors = [correction(protocol, int(e), known) for e in exponents.ravel()]
    return US * waiting + sizes / (GB * rate * np.reshape(factors, sizes.shape))


def _known_corrections(algorithm: str, comm: Communicator) -> int:
    """Number of the corrections by size that hold for an algorithm."""
    x86_blackwell = comm.capability >= c.BLACKWELL and comm.cpu in ("intel", "amd")
    known = {"tree": c.TREE_CORRECTIONS, "nvls-tree": c.NVLS_TREE_CORRECTIONS * x86_blackwell}
    return known.get(algorithm, 0)


def _rounds(kind: CollectiveKind) -> int:
    return 2 if kind == "all-reduce" else 1


def _ring_latency(
    kind: CollectiveKind, protocol: Protocol, comm: Communicator, inside: float, network: float
) -> float:
    """Microseconds of the steps that follow one another."""
    steps, crossing = (_rounds(kind) * (n - 1) for n in (comm.ranks, comm.nodes))
    if comm.nodes > 1:
        post = c.NETWORK_POST_AMD if comm.cpu == "amd" else c.NETWORK_POST
        inside = max(inside, post * (c.SIMPLE_POSTS if protocol == "Simple" else 1))
    return (steps - crossing) * inside + crossing * network


def _ring_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    count = comm.rings.count
    bus = count * (comm.rings.inside if comm.nodes <= 2 else comm.rings.outside)
    if protocol == "LL":
        bus = min(_ll_most(comm), c.RING_LL * bus)
    if protocol == "LL128":
        bus = min(c.LL128_SHARE * bus, count * cap_of(c.RING_LL128, comm.generation, comm.nodes))
    return bus * comm.ranks / (_rounds(kind) * (comm.ranks - 1))


def _tree_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    if kind != "all-reduce":
        return 0.0
    count, generation, nodes = comm.trees.count, comm.generation, comm.nodes
    bus = count * (comm.trees.inside if nodes <= 2 else comm.trees.outside)
    bus = min(c.TREE_SHARE * bus, count * cap_of(c.TREE_MOST, generation, nodes))
    if protocol == "LL":
        bus = min(c.TREE_LL * bus, _ll_most(comm))
    if protocol == "LL128":
        share = c.TREE_LL128_ONE_NODE if nodes == 1 else c.TREE_LL128_NODES
        bus = min(share * bus, count * cap_of(c.TREE_LL128, generation, nodes))
    return bus / 2 * (c.TREE_ONE_GPU if comm.ranks_per_node == 1 else 1.0)


def _ll_most(comm: Communicator) -> float:
    """Limit of LL: on one node by its GPUs; on several by the CPU (AMD counts as Ampere's row)."""
    generation = comm.generation if comm.nodes == 1 else int(comm.cpu == "amd")
    return cap_of(c.LL_MOST, generation, comm.nodes)


def _switch_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    """Sums in the switch of one node, or in those of several, which a tree joins."""
    if protocol != "Simple" or comm.nvls is None:
        return 0.0
    count, limit, reduces = comm.nvls.count, comm.nvls.outside, kind == "all-reduce"
    if comm.nodes > 1:
        if not reduces:
            return 0.0
        cap = cap_of(c.NVLS_TREE_MOST, comm.generation, comm.nodes)
        limit = min(limit * (2 if comm.nodes == 2 else 1), cap)
    within = comm.nvls.inside * c.NVLS_EFFICIENCY[comm.generation] * (count - 1) / count
    within *= 2 if reduces else (comm.ranks_per_node - 1) / comm.ranks_per_node
    bus = count * min(within, limit)
    return bus * comm.ranks / (2 * (comm.ranks - 1)) if reduces else bus


def _pat_bandwidth(kind: CollectiveKind, protocol: Protocol, comm: Communicator) -> float:
    lone = comm.ranks_per_node == 1 and comm.nodes > 1
    if protocol != "Simple" or kind not in GATHERS or not lone:
        return 0.0
    speed = comm.trees.inside if comm.nodes <= 2 else comm.trees.outside
    return c.PAT_SHARE * comm.trees.count * speed


def _bandwidths(comm: Communicator) -> dict[str, Bandwidth]:
    """The rule of each algorithm, in NCCL's order: of two equal estimates the first is taken."""
    switch = "nvls" if comm.nodes == 1 else "nvls-tree"
    return {
        "tree": _tree_bandwidth,
        "ring": _ring_bandwidth,
        switch: _switch_bandwidth,
        "pat": _pat_bandwidth,
    }
