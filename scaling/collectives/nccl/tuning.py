"""NCCL's own estimate of every algorithm and protocol: what it ranks them by.

    seconds = latency + bytes / bandwidth

    ring   latency   base + (steps - s) x inside + s x network      s of the steps cross nodes
           bandwidth channels x speed x N / steps                   steps = 2 (N - 1), N - 1 or N
    tree             base + 2 ((p - 1) x inside + log2 M x network) N ranks on M nodes, p on each
                     half of the channels x speed, times a correction by size
    nvls             inside, and for trees 2 log2 M x network       bandwidth: nccl/nvls.py
    pat              base + log2 M x network / 3.5 + 2.8 N          gathers over single GPUs

The model ranks; it is no prediction (experiments/published says how far off it is). Restated from
NVIDIA/nccl, src/graph/tuning.cc; tested against tables that NCCL printed. Left out: CollNet (SHARP
over the network needs a plugin and NCCL_COLLNET_ENABLE=1), Power CPUs, several calls in one launch,
fp8, and latencies that a NIC states of itself (InfiniBand states none).
"""

from collections.abc import Mapping
from math import log2

import numpy as np

from scaling.collectives.nccl.communicator import Communicator
from scaling.collectives.nccl.constants import (
    CORRECTION_START,
    PROTOCOLS,
    TREE_CORRECTIONS,
    TUNED,
    Constants,
    Protocol,
    capped,
    correction,
)
from scaling.collectives.nccl.nvls import nvls_bandwidth
from scaling.profiles.profile import Algorithm
from scaling.program.ir import CollectiveKind, Number

Pair = tuple[Algorithm, Protocol]
US, GB = 1e-6, 1e9
KINDS: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")
GATHERS: tuple[CollectiveKind, ...] = ("all-gather", "reduce-scatter")
LL128_SHARE = 0.92  # of the bandwidth; 120 of 128 bytes are payload
TREE_SHARE = 0.92
TREE_LL = 3.8  # times the bytes
TREE_LL128_ONE, TREE_LL128_MORE = 7 / 9, 120 / 128
PLAIN_TREE = 0.85  # one GPU per node: the tree cannot be split over two
POSTS = 3  # to the network, of a piece under Simple
PLATEAU, PLATEAU_VOLTA, PLATEAU_FROM = 1.4, 1.9, 64  # rings over nodes, bytes per channel and rank
PAT_DEPTH, PAT_RANK = 3.5, 2.8  # us of a rank
PAT_CAPABILITY = 60  # needs its atomics
AMPERE, BLACKWELL = 80, 100
X86 = ("intel", "amd")


def estimates(
    kind: CollectiveKind, bytes: Number, comm: Communicator, constants: Constants
) -> dict[Pair, np.ndarray]:
    """Seconds of every pair that can run, in NCCL's order.

    Args:
        kind: one of KINDS, else there are none.
        bytes: buffer of an all-reduce or broadcast, unsharded total of a gather or scatter.
        comm: the GPUs.
        constants: of a version.
    """
    sizes = np.asarray(bytes, float)
    return {
        pair: _seconds(kind, pair, sizes, rate, comm, constants)
        for pair, rate in bandwidths(kind, comm, constants).items()
    }


def bandwidths(kind: CollectiveKind, comm: Communicator, constants: Constants) -> dict[Pair, float]:
    """GB/s of every pair that can run, as bytes of the call per second."""
    pairs: list[Pair] = [(a, p) for a in TUNED for p in PROTOCOLS if p != "LL128" or comm.ll128]
    rates = {pair: _bandwidth(kind, pair, comm, constants) for pair in pairs if kind in KINDS}
    return {pair: rate for pair, rate in rates.items() if rate > 0}


def latency(kind: CollectiveKind, pair: Pair, comm: Communicator, constants: Constants) -> float:
    """Microseconds of a call without bytes."""
    algorithm, protocol = pair
    inside = _step(constants.nvlink if comm.nvlink else constants.pcie, pair)
    row: Algorithm = "tree" if comm.per_node == 1 and constants.lone_hop else algorithm
    network = _step(constants.network, (row, protocol))
    base = _step(constants.base, pair)
    depth = int(log2(comm.nodes))
    if algorithm == "ring":
        return base + _ring_steps(kind, protocol, comm, constants, inside, network)
    if algorithm == "tree":
        return base + 2 * ((comm.ranks // comm.nodes - 1) * inside + depth * network)
    if algorithm == "pat":
        return base + depth * network / PAT_DEPTH + PAT_RANK * comm.ranks
    if algorithm == "nvls":
        return base + inside
    climbs = comm.nodes - 1 if constants.nvls == "first" else depth
    return base + inside + 2 * climbs * network


def _seconds(
    kind: CollectiveKind,
    pair: Pair,
    sizes: np.ndarray,
    rate: float,
    comm: Communicator,
    constants: Constants,
) -> np.ndarray:
    algorithm, protocol = pair
    waiting = np.full(sizes.shape, latency(kind, pair, comm, constants))
    if pair == ("ring", "Simple") and comm.nodes > 1 and kind == "all-reduce":
        plateau = PLATEAU if comm.capability >= AMPERE else PLATEAU_VOLTA
        each = sizes // (comm.connected * comm.ranks)
        waiting = np.where(each >= PLATEAU_FROM, plateau * waiting, waiting)
    known = _corrections(algorithm, comm, constants)
    if known:
        exponents = np.floor(np.log2(np.maximum(sizes, 1) / CORRECTION_START)).astype(int)
        factors = [correction(protocol, int(e), known) for e in exponents.ravel()]
        return US * waiting + sizes / (GB * rate * np.reshape(factors, sizes.shape))
    return US * waiting + sizes / (GB * rate)


def _corrections(algorithm: Algorithm, comm: Communicator, constants: Constants) -> int:
    """How many corrections by size hold for an all-reduce by this algorithm."""
    if algorithm == "tree":
        return TREE_CORRECTIONS
    behind = comm.capability >= BLACKWELL and comm.cpu in X86
    return constants.nvls_tree_corrections if algorithm == "nvls-tree" and behind else 0


def _bandwidth(kind: CollectiveKind, pair: Pair, comm: Communicator, constants: Constants) -> float:
    algorithm, protocol = pair
    if algorithm == "ring":
        return _ring_bandwidth(kind, protocol, comm, constants)
    if algorithm == "tree":
        return _tree_bandwidth(protocol, comm, constants) if kind == "all-reduce" else 0.0
    if protocol != "Simple" or kind == "broadcast":
        return 0.0
    if algorithm == "pat":
        return _pat_bandwidth(kind, comm, constants)
    return nvls_bandwidth(kind, algorithm == "nvls-tree", comm, constants)


def _ring_bandwidth(
    kind: CollectiveKind, protocol: Protocol, comm: Communicator, constants: Constants
) -> float:
    count = comm.rings.count
    bus = count * (comm.rings.inside if comm.nodes <= 2 else comm.rings.outside)
    if protocol == "LL":
        share = constants.ring_ll[0 if comm.nodes > 1 or kind == "all-reduce" else 1]
        bus = min(_ll_most(comm, constants), share * bus)
    if protocol == "LL128":
        share = constants.lone_ll128 if comm.per_node < 2 else LL128_SHARE
        most = capped(constants.ring_ll128, comm.generation, comm.nodes)
        bus = min(share * bus, count * most)
    return bus * comm.ranks / _ring_hops(kind, comm)


def _tree_bandwidth(protocol: Protocol, comm: Communicator, constants: Constants) -> float:
    count, generation, nodes = comm.trees.count, comm.generation, comm.nodes
    bus = count * (comm.trees.inside if nodes <= 2 else comm.trees.outside)
    bus = min(TREE_SHARE * bus, count * capped(constants.tree_most, generation, nodes))
    if protocol == "LL":
        bus = min(bus / TREE_LL, _ll_most(comm, constants))
    if protocol == "LL128":
        share = TREE_LL128_ONE if nodes == 1 else TREE_LL128_MORE
        bus = min(share * bus, count * capped(constants.tree_ll128, generation, nodes))
    return bus / 2 * (PLAIN_TREE if comm.per_node == 1 else 1.0)


def _pat_bandwidth(kind: CollectiveKind, comm: Communicator, constants: Constants) -> float:
    lone = comm.per_node == 1 and comm.capability >= PAT_CAPABILITY
    if kind not in GATHERS or not lone:
        return 0.0
    speed = comm.trees.inside if comm.nodes <= 2 else comm.trees.outside
    return constants.pat * comm.trees.count * speed


def _ll_most(comm: Communicator, constants: Constants) -> float:
    """Of one node by its GPUs; of several by the CPUs, in the rows of other GPUs."""
    generation = comm.generation if comm.nodes == 1 else int(comm.cpu == "amd")
    return capped(constants.ll_most, generation, comm.nodes)


def _ring_hops(kind: CollectiveKind, comm: Communicator) -> int:
    if kind == "broadcast":
        return comm.ranks
    return (2 if kind == "all-reduce" else 1) * (comm.ranks - 1)


def _ring_steps(
    kind: CollectiveKind,
    protocol: Protocol,
    comm: Communicator,
    constants: Constants,
    inside: float,
    network: float,
) -> float:
    """Microseconds of the steps that follow one another."""
    several = comm.nodes > 1
    if kind == "broadcast":
        rows = constants.network if several else constants.nvlink if comm.nvlink else constants.pcie
        if comm.same:
            return _step(rows, ("ring", protocol))
        row: Algorithm = "tree" if protocol == "Simple" else "ring"
        return comm.ranks * _step(rows, (row, protocol))
    steps, crossing = _ring_hops(kind, comm), 0
    if several:
        crossing = comm.nodes - 1
        if kind == "all-reduce":
            crossing = 2 * (comm.nodes - constants.closing)
        post = constants.hosts.post_amd if comm.cpu == "amd" else constants.hosts.post
        inside = max(inside, post * (POSTS if protocol == "Simple" else 1))
    return (steps - crossing) * inside + crossing * network


def _step(rows: Mapping[Algorithm, tuple[float, float, float]], pair: Pair) -> float:
    algorithm, protocol = pair
    return rows[algorithm][PROTOCOLS.index(protocol)]
