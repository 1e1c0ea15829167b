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

Channels are searched: NCCL tries a list of speeds from the top down and counts the channels that
fit at each. The speed with the most bandwidth in all wins; the search ends where a speed is less
than half of the best. Fast channels are then split in two:

    8 A100  6 x 40 -> 12 x 20      8 H100  6 x 60 -> 12 x 30      8 B200  8 x 90 -> 16 x 45

A node is an NVLink domain where there is one. NCCL sees one group of GPUs at a time: other groups
that use the same links at the same time do not enter its choice.

The model ranks; as a prediction of times it is far off (experiments/published), and the times of a
prediction come from the fits of a profile. It is tested against tables that NCCL printed. Left out:
broadcasts, which have rings only; CollNet (SHARP over the network needs a plugin and
NCCL_COLLNET_ENABLE=1); Power CPUs; several calls in one launch; fp8; latencies that a NIC states of
itself (InfiniBand states none).

Source: NVIDIA/nccl, tag v2.30.7-1, commit 73cf112295c33aee2b895f329f592f2a9b4b0f97, src/graph:
tuning.cc, search.cc (in closed form for machines whose GPUs are alike), topo.h and topo.cc;
src/include/device.h. Microseconds and GB/s (1e9 bytes/s).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log2
from typing import Literal, get_args

import numpy as np

from scaling.collectives.algorithms import REDUCTIONS, rounds
from scaling.collectives.contention import in_order
from scaling.meshes.cluster import Cluster, network_link
from scaling.meshes.levels import levels
from scaling.meshes.rings import Links, ring_count
from scaling.program.ir import CollectiveKind, Number

VERSION = "2.30.7"
VENDOR = "NVIDIA"
US, GB = 1e-6, 1e9
EPSILON = 1e-6

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
Pair = tuple[str, Protocol]
KINDS = REDUCTIONS

# Compute capability x 10. A table with four rows has one each for Volta and before, Ampere, Hopper
# and Blackwell.
VOLTA, AMPERE, HOPPER, BLACKWELL = 70, 80, 90, 100
Row = tuple[float, float, float]

# Latencies in us under LL, LL128 and Simple: of one call, and of one step over NVLink, PCIe and the
# network.
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

# Bandwidth limits in GB/s, by generation: on one node, two nodes, and more.
Cap = tuple[Row, Row, Row, Row]
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
NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)  # by generation
PAT_SHARE = 0.75
# Trees lack bandwidth at medium sizes: a factor for every power of two from 64 bytes on.
CORRECTION_START = 64  # bytes
TREE_CORRECTIONS, NVLS_TREE_CORRECTIONS = 23, 24  # how many of the factors hold
CORRECTION_TENTHS: dict[Protocol, tuple[int, ...]] = {
    "LL": (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10),
    "LL128": (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10),
    "Simple": (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9),
}

# GB/s of one channel, in the order in which the search tries them, by generation
Speeds = tuple[float, ...]
Nics = tuple[int, float]  # how many of a node, and GB/s of each; (0, 0.0): not crossed
SLOW: Speeds = (6, 3, 2.4, 1.2, 0.24, 0.12)
OLDER: Speeds = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
OLDER_NODES: Speeds = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
SPEEDS_ONE_NODE: tuple[Speeds, ...] = (
    *(OLDER, OLDER, (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
)
SPEEDS_NODES: tuple[Speeds, ...] = (
    *(OLDER_NODES, OLDER_NODES, (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)),
    (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW),
)
HALF = 0.49  # the search ends at this fraction of the best speed
SPLIT_FROM = 25.0  # GB/s of a channel that is split in two
SPLIT_NEWER, FEW = 50.0, 4  # the same after Ampere, where there are more than FEW channels
NO_PATH = 0.1  # GB/s of the one channel where none fits
MOST_CHANNELS = 32  # rings before they are doubled; channels of NVLS
WIDE, WIDE_CHANNELS = 45.0, 16  # GB/s above which few channels are doubled again, on Hopper and on
NVLS_GPUS = 2  # fewest of a node (src/transport/nvls.cc)

# GB/s that NCCL counts for one NVLink over its rated GB/s, from a compute capability on
NVLINK_SHARE = {
    **{60: 18 / 20, VOLTA: 20 / 25, 86: 12 / 14.0625, 87: 20 / 25},
    **{HOPPER: 20.6 / 25, BLACKWELL: 40.1 / 50},
}
PCIE_SHARE = 12 / 15.75  # NCCL's 12 GB/s of 8 GT/s x 16 lanes x 128/130 (Gen3 x16), and so on
SOCKET_LINKS = "links between sockets"  # the level
INTEL_DETOUR = 6 / 5  # bytes through an Intel CPU, where GPUs exchange small packets
# GB/s between the sockets of a host. Intel: by the GT/s of its links (Broadwell, Skylake to Ice
# Lake, Sapphire and Emerald Rapids, Granite Rapids); unknown CPUs count as local.
SOCKETS = {"amd": 16.0, "arm": 6.0}
BYTES_PER_TRANSFER = 2  # of a link between sockets
INTEL_SOCKETS = {0: 6.0, 10: 10.0, 16: 22.0, 20: 40.0}
UNKNOWN_SOCKETS = 5000.0


def figure_from(steps: dict[int, float], value: int) -> float:
    """Figure of the last step that `value` reaches, or of the first step."""
    return steps[max((start for start in steps if start <= value), default=min(steps))]


@dataclass(frozen=True)
class Channels:
    """Channels of one algorithm: how many, and GB/s of each inside and between nodes."""

    count: int
    inside: float
    outside: float

    def speed(self, nodes: int) -> float:
        """GB/s of each that counts on so many nodes."""
        return self.inside if nodes <= 2 else self.outside


@dataclass(frozen=True)
class Communicator:
    """One group of GPUs."""

    ranks: int
    nodes: int
    capability: int  # 90 for 9.0
    cpu: str  # as scaling.meshes.cluster.CpuMake
    nvlink: bool  # all hops inside a node go over NVLink
    ll128: bool  # safe: NVLink inside, no CPU in front of the NICs, GPUs from Volta on
    rings: Channels
    trees: Channels
    nvls: Channels | None = None

    @property
    def ranks_per_node(self) -> float:
        """Mean number of ranks on a node."""
        return self.ranks / self.nodes

    @property
    def connected_channels(self) -> int:
        """Channels once the rings are connected: each is used twice."""
        count = min(2 * MOST_CHANNELS, 2 * self.rings.count)
        wide = self.capability >= HOPPER and self.nodes > 1 and self.rings.inside > WIDE
        return 2 * count if wide and count < WIDE_CHANNELS else count


def generation_of(capability: int) -> int:
    """Row of a table: 0 Volta and before, 1 Ampere, 2 Hopper, 3 Blackwell."""
    return sum(capability >= start for start in (AMPERE, HOPPER, BLACKWELL))


@dataclass(frozen=True)
class NcclChoice:
    """The pair that NCCL ranks first at one size."""

    algorithm: str
    protocol: Protocol
    estimate: float  # s, by NCCL's table: for ranking, no prediction
    version: str = VERSION


# Estimates


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
    every = estimates(kind, np.asarray(sizes, float), comm) if comm else {}
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
    sizes, seconds = np.asarray(bytes, float), {}
    for pair, rate in bandwidths(kind, comm).items():
        waiting = np.full(sizes.shape, latency(kind, pair, comm))
        if pair == ("ring", "Simple") and comm.nodes > 1 and kind == "all-reduce":
            plateau = PLATEAU if comm.capability >= AMPERE else PLATEAU_VOLTA
            piece = sizes // (comm.connected_channels * comm.ranks)
            waiting = np.where(piece >= PLATEAU_PIECE, plateau * waiting, waiting)
        seconds[pair] = US * waiting + sizes / (GB * rate * _corrections(pair, sizes, comm))
    return seconds


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


def bandwidths(kind: CollectiveKind, comm: Communicator) -> dict[Pair, float]:
    """GB/s of every pair that can run: bytes of the call per second.

    In NCCL's order: of two equal estimates the first is taken.
    """
    if kind not in KINDS:
        return {}
    n, nodes, count, trees = comm.ranks, comm.nodes, comm.rings.count, comm.trees
    generation = generation_of(comm.capability)
    cap = lambda limits, row=generation: limits[row][min(nodes, 3) - 1]
    # on several nodes LL goes by the CPU, of which AMD's count as Ampere's row
    ll_most = cap(LL_MOST, generation if nodes == 1 else int(comm.cpu == "amd"))
    is_lone, reduces = comm.ranks_per_node == 1, kind == "all-reduce"
    rates: dict[Pair, float] = {}
    if reduces:
        bus = min(TREE_SHARE * (trees.count * trees.speed(nodes)), trees.count * cap(TREE_MOST))
        share = TREE_LL128_ONE_NODE if nodes == 1 else TREE_LL128_NODES
        tree = min(TREE_LL * bus, ll_most), min(share * bus, trees.count * cap(TREE_LL128)), bus
        half = lambda rate: rate / 2 * (TREE_ONE_GPU if is_lone else 1.0)
        rates |= {("tree", p): half(rate) for p, rate in zip(PROTOCOLS, tree, strict=True)}
    bus = count * comm.rings.speed(nodes)
    ring = min(ll_most, RING_LL * bus), min(LL128_SHARE * bus, count * cap(RING_LL128)), bus
    rates |= {
        ("ring", p): rate * n / (rounds(kind) * (n - 1))
        for p, rate in zip(PROTOCOLS, ring, strict=True)
    }
    if comm.nvls and (reduces or nodes == 1):  # sums in one switch, or several that a tree joins
        count, limit = comm.nvls.count, comm.nvls.outside
        if nodes > 1:
            limit = min(limit * (2 if nodes == 2 else 1), cap(NVLS_TREE_MOST))
        within = comm.nvls.inside * NVLS_EFFICIENCY[generation] * (count - 1) / count
        within *= 2 if reduces else (comm.ranks_per_node - 1) / comm.ranks_per_node
        bus = count * min(within, limit)
        switch = "nvls" if nodes == 1 else "nvls-tree"
        rates[switch, "Simple"] = bus * n / (2 * (n - 1)) if reduces else bus
    if is_lone and nodes > 1 and not reduces:
        rates["pat", "Simple"] = PAT_SHARE * trees.count * trees.speed(nodes)
    return {(a, p): r for (a, p), r in rates.items() if r > 0 and (p != "LL128" or comm.ll128)}


def _corrections(pair: Pair, sizes: np.ndarray, comm: Communicator) -> np.ndarray:
    """Factors on the bandwidth at some sizes; 1 outside those that hold for the algorithm."""
    algorithm, protocol = pair
    x86_blackwell = comm.capability >= BLACKWELL and comm.cpu in ("intel", "amd")
    held = {"tree": TREE_CORRECTIONS, "nvls-tree": NVLS_TREE_CORRECTIONS * x86_blackwell}
    tenths = np.array(CORRECTION_TENTHS[protocol])
    power = np.floor(np.log2(np.maximum(sizes, 1) / CORRECTION_START)).astype(int)
    holds = (power >= 0) & (power < held.get(algorithm, 0))
    return np.where(holds, tenths[np.where(holds, power, 0)] / 10, 1.0)


# Channels


def communicator(groups: np.ndarray, cluster: Cluster) -> Communicator | None:
    """The group (of device ids [groups, members]) that spans most nodes.

    None without NVIDIA GPUs, for groups of one rank, or with an infinite link: there is no NCCL.
    """
    unlike = any(link.total_bandwidth == inf for link in cluster.links)
    if cluster.accelerator.vendor != VENDOR or groups.shape[1] == 1 or unlike:
        return None
    size = cluster.devices_per_node * cluster.domain_nodes
    domains = in_order(groups) // size
    nodes = 1 + (np.diff(domains, axis=1) > 0).sum(axis=1)
    widest = int(np.argmax(nodes))
    members = groups[widest]
    fullest = members[members // size == np.argmax(np.bincount(members // size))]
    chips = tuple(sorted((fullest % size).tolist()))
    return _communicator(cluster, len(members), int(nodes[widest]), chips)


@lru_cache(maxsize=256)
def _communicator(cluster: Cluster, ranks: int, nodes: int, chips: tuple[int, ...]) -> Communicator:
    """The communicator of `ranks` on `nodes`, the fullest of which has `chips`."""
    capability = round(10 * (cluster.accelerator.compute_capability or 0))
    links = node_links(cluster, chips, capability)
    nics = nics_of(cluster, len(chips)) if nodes > 1 else (0, 0.0)
    speeds = (SPEEDS_ONE_NODE if nodes == 1 else SPEEDS_NODES)[generation_of(capability)]
    rings = ring_channels(links, nics, speeds, capability)
    sums = cluster.has_nvls and links.kind == "switch" and len(chips) >= NVLS_GPUS
    nic = next((j for j in cluster.links if j.parts[0] == "nic" and j.parts[1] != "leaf"), None)
    # From Hopper on, LL128 may pass through a CPU that joins its GPU by NVLink-C2C.
    coherent = any(j.kind == "c2c" for j in cluster.links) and capability >= HOPPER
    behind_cpu = nodes > 1 and nic is not None and nic.parts[1] == "socket" and not coherent
    return Communicator(
        ranks=ranks,
        nodes=nodes,
        capability=capability,
        cpu=cluster.cpu,
        nvlink=links.kind in ("switch", "pairs"),
        ll128=capability >= VOLTA and links.kind != "pcie" and not behind_cpu,
        rings=rings,
        trees=tree_channels(rings, links, speeds),
        nvls=nvls_channels(links, nics, speeds) if sums else None,
    )


@dataclass(frozen=True)
class NodeLinks:
    """The links among the GPUs of one node that take part, at a share of their rated bandwidth.

    switch   every GPU on an NVSwitch: as many rings as the bandwidth of a GPU holds
    pairs    links between pairs of GPUs: the rings that they hold at once (scaling.meshes.rings)
    pcie     one ring in the order of the GPUs, limited by its most loaded link
    alone    one GPU of a node: no limit
    """

    kind: Literal["switch", "pairs", "pcie", "alone"]
    gpus: int
    bandwidth: float = 0.0  # GB/s: out of one GPU, of one link of a pair, of one ring on PCIe
    links: Links = ()  # from each GPU to each, of pairs

    @property
    def total(self) -> float:
        """GB/s out of one GPU: the search ends when the channels reach it."""
        return self.bandwidth * max(map(sum, self.links), default=1)

    @property
    def widest(self) -> float:
        """GB/s from a GPU to another, at most."""
        return self.bandwidth * max(map(max, self.links), default=1)

    def rings(self, speed: float) -> int:
        """Number of rings of that speed that fit at once."""
        several = int(self.bandwidth / speed + EPSILON)
        if self.kind != "pairs":
            return MOST_CHANNELS if self.kind == "alone" else several
        everyone = tuple(range(self.gpus))
        if speed <= self.bandwidth:  # several rings may share one link
            return ring_count(self.links, everyone) * several
        joined = tuple(tuple(int(n * self.bandwidth / speed) for n in row) for row in self.links)
        return ring_count(joined, everyone)


def node_links(cluster: Cluster, gpus: tuple[int, ...], capability: int) -> NodeLinks:
    """The links of rings through `gpus` (chips of a node, or of an NVLink domain)."""
    number, first = len(gpus), levels(cluster)[0]
    speed = figure_from(NVLINK_SHARE, capability) * first.bandwidth / GB
    if number == 1:
        return NodeLinks("alone", number)
    if first.link == "nvlink" and not first.peers and not first.pair_links:
        return NodeLinks("switch", number, speed)
    if first.peers:  # links between every two
        count = next(j.count for j in cluster.links if j.kind == first.link and j.wiring == "all")
        links = tuple(tuple(count * (i != j) for j in gpus) for i in gpus)
        return NodeLinks("pairs", number, speed / first.peers / count, links)
    if first.pair_links and ring_count(first.pair_links, gpus):
        links = tuple(tuple(first.pair_links[i][j] for j in gpus) for i in gpus)
        return NodeLinks("pairs", number, speed, links)
    return NodeLinks("pcie", number, pcie_ring(cluster, gpus))


def pcie_ring(cluster: Cluster, gpus: tuple[int, ...]) -> float:
    """GB/s of a ring through `gpus` in their order: the least of all levels; 0 without PCIe.

    Without peer access, and between switches, a hop climbs to the CPU; through an Intel CPU it
    takes INTEL_DETOUR times its bytes, unless it goes on to another socket.
    """
    source, target = np.array(gpus), np.roll(gpus, -1)
    pcie = {level.name: level for level in levels(cluster) if level.link == "pcie"}
    leaves = {k: v.labels.unit[source] != v.labels.unit[target] for k, v in pcie.items()}
    climbs = leaves.get("PCIe of a switch", True) & ~leaves.get(SOCKET_LINKS, np.False_)
    weight = np.where(climbs, INTEL_DETOUR if cluster.cpu == "intel" else 1.0, 1.0)
    speeds = []
    for name, level in pcie.items():
        rated = PCIE_SHARE * level.bandwidth / GB
        speed = socket_speed(cluster) if name == SOCKET_LINKS else rated
        ends = (level.labels.pool[end] for end in (source, target))
        load = max(np.bincount(pool, leaves[name] * weight).max() for pool in ends)
        speeds += [speed / load] if load else []
    return float(min(speeds, default=0.0))


def socket_speed(cluster: Cluster) -> float:
    """GB/s that NCCL counts between two sockets, by the make of the CPUs."""
    if cluster.cpu == "intel":
        links = next((j for j in cluster.links if j.parts == ("socket", "socket")), None)
        rate = links.bandwidth.value / GB if links and links.bandwidth else 0.0
        return figure_from(INTEL_SOCKETS, int(rate / BYTES_PER_TRANSFER + EPSILON))
    return SOCKETS.get(cluster.cpu, UNKNOWN_SOCKETS)


def nics_of(cluster: Cluster, gpus: int) -> Nics:
    """Number of NICs close to `gpus` of a node, and GB/s of each; several of one GPU are one.

    Plugins of clouds join the NICs of a GPU, and NCCL joins those of one card.
    """
    ports = network_link(cluster)
    if ports is None or not cluster.nics:
        return 0, 0.0
    per_gpu = cluster.nics / cluster.devices_per_node
    count = max(1, round(min(1.0, per_gpu) * gpus))
    speeds = [max(1.0, per_gpu) * (ports.total_bandwidth or 0.0) / GB]
    for part, links in (("chip", 1.0), ("nic", max(1.0, per_gpu))):
        pcie = next((j for j in cluster.links if j.parts[0] == part and j.kind == "pcie"), None)
        if pcie is not None:
            speeds.append(links * PCIE_SHARE * (pcie.total_bandwidth or 0.0) / GB)
    return count, min(speeds)


def ring_channels(links: NodeLinks, nics: Nics, speeds: Speeds, capability: int) -> Channels:
    """Rings through the GPUs of a node and, with several nodes, its NICs."""
    nic_count, nic = nics
    outside = lambda speed: nic_count * int(nic / speed + EPSILON) if nic_count else MOST_CHANNELS
    room = lambda speed: min(MOST_CHANNELS, links.rings(speed), outside(speed))
    total = nic if links.kind == "alone" else links.total
    count, speed = most_bandwidth(speeds, nic if nic_count else links.widest, total, room)
    if not count:
        return Channels(1, NO_PATH, NO_PATH)
    newer = capability > AMPERE and speed < SPLIT_NEWER and count > FEW
    split = 2 * count if speed >= SPLIT_FROM and not newer else count
    pieces = ceil(min(split, MOST_CHANNELS) / count)
    return Channels(min(split, MOST_CHANNELS), speed / pieces, speed / pieces)


def most_bandwidth(
    speeds: Speeds, widest: float, total: float, room: Callable[[float], int]
) -> tuple[int, float]:
    """Number of channels and their speed with the most bandwidth; (0, 0) where none fits."""
    count, best = 0, 0.0
    for speed in (speed for speed in speeds if speed <= widest + EPSILON):
        if count and speed / best <= HALF:
            break
        if (fitting := room(speed)) * speed > count * best + EPSILON:
            count, best = fitting, speed
        if count * best >= total - EPSILON:
            break
    return count, best


def tree_channels(rings: Channels, links: NodeLinks, speeds: Speeds) -> Channels:
    """As many trees as rings; a chain through a node has one hop less, so that it may be faster."""
    room = {"alone": inf, "switch": links.bandwidth + EPSILON}.get(links.kind, -inf)
    fits = lambda speed: rings.count * speed * (links.gpus - 1) / links.gpus <= room
    inside = _raised(rings.inside, 2 * rings.outside, speeds, fits)
    return Channels(rings.count, inside, rings.outside)


def nvls_channels(links: NodeLinks, nics: Nics, speeds: Speeds) -> Channels | None:
    """One channel per GPU that pulls sums from the switch, over its link twice; None: none fits.

    With several nodes, only GPUs with a NIC of their own pull.
    """
    nic_count, nic = nics
    heads = min(MOST_CHANNELS, links.gpus, nic_count or links.gpus)
    widest = nic if nic_count else links.bandwidth
    within = lambda speed: int(links.bandwidth / speed + EPSILON) - 1
    room = lambda speed: min(heads, within(speed)) if nic_count or within(speed) >= heads else 0
    fitting = [(room(speed), speed) for speed in speeds if speed <= widest + EPSILON]
    count, best = max(fitting, default=(0, 0.0))  # of equally many the fastest
    if count <= 0:
        return None
    outside = _raised(best, 2 * best, speeds, lambda s: not nic_count or s <= widest + EPSILON)
    return Channels(count, best, outside)


def _raised(start: float, goal: float, speeds: Speeds, fits: Callable[[float], bool]) -> float:
    """Steps up from `start` until a speed does not fit or `goal` is reached."""
    for speed in reversed(speeds):
        if speed > start + EPSILON:
            if start >= goal - EPSILON or not fits(speed):
                break
            start = speed
    return start
