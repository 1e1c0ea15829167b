"""The channels that NCCL makes of the links of one group of GPUs, and how fast each is, in GB/s.

NCCL tries a list of speeds from the top down and counts the channels that fit at each. The speed
with the most bandwidth in all wins; the search ends where a speed is less than half of the best.
Fast channels are then split in two:

    8 A100  6 x 40 -> 12 x 20      8 H100  6 x 60 -> 12 x 30      8 B200  8 x 90 -> 16 x 45

The rings that the links of a node hold, at a share of their rated bandwidth:

    switch   every GPU on an NVSwitch: as many rings as the bandwidth of a GPU holds
    pairs    links between pairs of GPUs: the rings that they hold at once (scaling.meshes.rings)
    pcie     one ring in the order of the GPUs, limited by its most loaded link
    alone    one GPU of a node: no limit

A node is an NVLink domain where there is one. NCCL sees one group of GPUs at a time: other groups
that use the same links at the same time do not enter its choice. Source: NVIDIA/nccl 2.30.7,
src/graph/search.cc (in closed form for machines whose GPUs are alike), topo.h and topo.cc.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import Literal, TypeVar

import numpy as np

from scaling.collectives.contention import in_order
from scaling.collectives.run_lengths import counted
from scaling.meshes.cluster import Cluster, network_link
from scaling.meshes.levels import levels
from scaling.meshes.rings import Links, ring_count

T = TypeVar("T")
Speeds = tuple[float, ...]  # GB/s of one channel, in the order in which the search tries them

# Compute capability x 10 -> a figure, from that capability on
VOLTA, AMPERE, HOPPER, BLACKWELL = 70, 80, 90, 100
GENERATIONS = ((0, 0), (AMPERE, 1), (HOPPER, 2), (BLACKWELL, 3))  # row of a cap
NVLINK_SHARE = (  # GB/s that NCCL counts for one link over its rated GB/s
    *((60, 18 / 20), (VOLTA, 20 / 25), (86, 12 / 14.0625), (87, 20 / 25)),
    *((HOPPER, 20.6 / 25), (BLACKWELL, 40.1 / 50)),
)
PCIE_SHARE = 12 / 15.75  # NCCL's 12 GB/s of 8 GT/s x 16 lanes x 128/130 (Gen3 x16), and so on
INTEL_DETOUR = 6 / 5  # bytes through an Intel CPU, where GPUs exchange small packets
SLOW: Speeds = (6, 3, 2.4, 1.2, 0.24, 0.12)
SPEEDS_ONE_NODE: tuple[tuple[int, Speeds], ...] = (
    (0, (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)),
    (HOPPER, (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)),
    (BLACKWELL, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)),
)
SPEEDS_NODES: tuple[tuple[int, Speeds], ...] = (
    (0, (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)),
    (HOPPER, (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)),
    (BLACKWELL, (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)),
)
GB = 1e9
EPSILON = 1e-6
VENDOR = "NVIDIA"
NVLS_GPUS = 2  # fewest of a node (NVIDIA/nccl 2.30.7, src/transport/nvls.cc)
WIDE, WIDE_CHANNELS = 45.0, 16  # GB/s above which few channels are doubled again, on Hopper and on
HALF = 0.49  # the search ends at this fraction of the best speed
SPLIT_FROM = 25.0  # GB/s of a channel that is split in two
SPLIT_NEWER, FEW = 50.0, 4  # the same after Ampere, where there are more than FEW channels
NO_PATH = 0.1  # GB/s of the one channel where none fits
MOST_CHANNELS = 32  # rings before they are doubled; channels of NVLS
# GB/s between the sockets of a host. Intel: by the GT/s of its links (Broadwell, Skylake to Ice
# Lake, Sapphire and Emerald Rapids, Granite Rapids); unknown CPUs count as local.
SOCKETS = {"amd": 16.0, "arm": 6.0}
BYTES_PER_TRANSFER = 2  # of a link between sockets
INTEL_SOCKETS = ((0, 6.0), (10, 10.0), (16, 22.0), (20, 40.0))
UNKNOWN_SOCKETS = 5000.0


def step_value(steps: Sequence[tuple[int, T]], value: int) -> T:
    """Value of a step function at `value`: the last step reached, or the first step."""
    return next((figure for start, figure in reversed(steps) if value >= start), steps[0][1])


# Links of a node


@dataclass(frozen=True)
class NodeLinks:
    """The links among the GPUs of one node that take part."""

    kind: Literal["switch", "pairs", "pcie", "alone"]
    gpus: tuple[int, ...]  # chips of the node
    bandwidth: float = 0.0  # GB/s: out of one GPU, of one link of a pair, of one ring on PCIe
    links: Links = ()  # between pairs

    @property
    def total(self) -> float:
        """GB/s out of one GPU: the search ends when the channels reach it."""
        return self.bandwidth * max(
            (sum(row[j] for j in self.gpus) for row in self._rows), default=1
        )

    @property
    def widest(self) -> float:
        """GB/s from a GPU to another, at most."""
        return self.bandwidth * max((row[j] for row in self._rows for j in self.gpus), default=1)

    @property
    def _rows(self) -> list[tuple[int, ...]]:
        return [self.links[i] for i in self.gpus] if self.links else []

    def rings(self, speed: float) -> int:
        """Number of rings of that speed that fit at once."""
        if self.kind == "alone":
            return MOST_CHANNELS
        several = int(self.bandwidth / speed + EPSILON)
        if self.kind != "pairs":
            return several
        if speed <= self.bandwidth:  # several rings may share one link
            return ring_count(self.links, self.gpus) * several
        joined = tuple(tuple(int(n * self.bandwidth / speed) for n in row) for row in self.links)
        return ring_count(joined, self.gpus)


def node_links(cluster: Cluster, gpus: tuple[int, ...], capability: int) -> NodeLinks:
    """The links of rings through `gpus` (chips of a node, or of an NVLink domain)."""
    if len(gpus) == 1:
        return NodeLinks("alone", gpus)
    first = levels(cluster)[0]
    speed = step_value(NVLINK_SHARE, capability) * first.bandwidth / GB
    if first.link == "nvlink" and not first.peers and not first.pair_links:
        return NodeLinks("switch", gpus, speed)
    if first.peers:  # links between every two
        count = next(j.count for j in cluster.links if j.kind == first.link and j.wiring == "all")
        links = tuple(tuple(count * (i != j) for j in gpus) for i in gpus)
        return NodeLinks("pairs", tuple(range(len(gpus))), speed / first.peers / count, links)
    if first.pair_links and ring_count(first.pair_links, gpus):
        return NodeLinks("pairs", gpus, speed, first.pair_links)
    return NodeLinks("pcie", gpus, pcie_ring(cluster, gpus))


def pcie_ring(cluster: Cluster, gpus: tuple[int, ...]) -> float:
    """GB/s of a ring through `gpus` in their order: the least of all levels; 0 without PCIe.

    Without peer access, and between switches, a hop climbs to the CPU; through an Intel CPU it
    takes INTEL_DETOUR times its bytes, unless it goes on to another socket.
    """
    source = np.array(gpus)
    target = np.roll(source, -1)
    pcie = {level.name: level for level in levels(cluster) if level.link == "pcie"}
    leaves = {k: v.labels.unit[source] != v.labels.unit[target] for k, v in pcie.items()}
    changes_socket = leaves.get("links between sockets", False)
    climbs = leaves.get("PCIe of a switch", True)
    detour = INTEL_DETOUR if cluster.cpu == "intel" else 1.0
    weight = np.where(np.logical_and(climbs, np.logical_not(changes_socket)), detour, 1.0)
    speeds = []
    for name, level in pcie.items():
        speed = PCIE_SHARE * level.bandwidth / GB
        if name == "links between sockets":
            speed = socket_speed(cluster)
        ends = (level.labels.pool[end] for end in (source, target))
        load = max(np.bincount(pool, leaves[name] * weight).max() for pool in ends)
        speeds += [speed / load] if load else []
    return float(min(speeds, default=0.0))


def socket_speed(cluster: Cluster) -> float:
    """GB/s that NCCL counts between two sockets, by the make of the CPUs."""
    if cluster.cpu == "intel":
        links = next((j for j in cluster.links if j.parts == ("socket", "socket")), None)
        rate = links.bandwidth.value / GB if links and links.bandwidth else 0.0
        return step_value(INTEL_SOCKETS, int(rate / BYTES_PER_TRANSFER + EPSILON))
    return SOCKETS.get(cluster.cpu, UNKNOWN_SOCKETS)


def nic_speeds(cluster: Cluster, gpus: int) -> tuple[float, ...]:
    """GB/s of each NIC close to `gpus` of a node; several of one GPU count as one.

    Plugins of clouds join the NICs of a GPU, and NCCL joins those of one card.
    """
    ports = network_link(cluster)
    if ports is None or not cluster.nics:
        return ()
    per_gpu = cluster.nics / cluster.devices_per_node
    count = max(1, round(min(1.0, per_gpu) * gpus))
    speeds = [max(1.0, per_gpu) * (ports.total_bandwidth or 0.0) / GB]
    for part, links in (("chip", 1.0), ("nic", max(1.0, per_gpu))):
        pcie = next((j for j in cluster.links if j.parts[0] == part and j.kind == "pcie"), None)
        if pcie is not None:
            speeds.append(links * PCIE_SHARE * (pcie.total_bandwidth or 0.0) / GB)
    return (min(speeds),) * count


def nics_behind_cpu(cluster: Cluster, capability: int) -> bool:
    """True if traffic from a GPU to its NIC passes through a CPU, where LL128 is not safe.

    From Hopper on, NCCL lets LL128 pass through a CPU that joins its GPU by NVLink-C2C.
    """
    nic = next((j for j in cluster.links if j.parts[0] == "nic" and j.parts[1] != "leaf"), None)
    coherent = any(j.kind == "c2c" for j in cluster.links) and capability >= HOPPER
    return nic is not None and nic.parts[1] == "socket" and not coherent


# A group of GPUs


@dataclass(frozen=True)
class Channels:
    """Channels of one algorithm: how many, and GB/s of each inside and between nodes."""

    count: int
    inside: float
    outside: float


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
    def generation(self) -> int:
        """Row of a cap: 0 Volta and before, 1 Ampere, 2 Hopper, 3 Blackwell."""
        return step_value(GENERATIONS, self.capability)

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
    present, counts = counted(domains[widest])
    members = groups[widest]
    fullest = members[members // size == present[int(np.argmax(counts))]]
    chips = tuple(sorted((fullest % size).tolist()))
    return _communicator(cluster, len(members), len(present), chips)


@lru_cache(maxsize=256)
def _communicator(cluster: Cluster, ranks: int, nodes: int, chips: tuple[int, ...]) -> Communicator:
    """The communicator of `ranks` on `nodes`, the fullest of which has `chips`."""
    capability = round(10 * (cluster.accelerator.compute_capability or 0))
    links = node_links(cluster, chips, capability)
    nics = nic_speeds(cluster, len(chips)) if nodes > 1 else ()
    speeds = step_value(SPEEDS_ONE_NODE if nodes == 1 else SPEEDS_NODES, capability)
    rings = ring_channels(links, nics, speeds, capability)
    sums = cluster.has_nvls and links.kind == "switch" and len(chips) >= NVLS_GPUS
    near = nodes == 1 or not nics_behind_cpu(cluster, capability)
    return Communicator(
        ranks=ranks,
        nodes=nodes,
        capability=capability,
        cpu=cluster.cpu,
        nvlink=links.kind in ("switch", "pairs"),
        ll128=capability >= VOLTA and links.kind != "pcie" and near,
        rings=rings,
        trees=tree_channels(rings, links, speeds),
        nvls=nvls_channels(links, nics, speeds) if sums else None,
    )


def ring_channels(
    links: NodeLinks, nics: Sequence[float], speeds: Speeds, capability: int
) -> Channels:
    """Rings through the GPUs of a node and, with several nodes, its NICs (GB/s; () with one)."""

    def room(speed: float) -> int:
        outside = sum(int(nic / speed + EPSILON) for nic in nics) if nics else MOST_CHANNELS
        return min(MOST_CHANNELS, links.rings(speed), outside)

    widest = max(nics) if nics else links.widest
    total = links.total if links.kind != "alone" else max(nics, default=0.0)
    count, speed = most_bandwidth(speeds, widest, total, room)
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
    for speed in speeds:
        if speed > widest + EPSILON:
            continue
        if count and speed / best <= HALF:
            break
        if (fitting := room(speed)) * speed > count * best + EPSILON:
            count, best = fitting, speed
        if count * best >= total - EPSILON:
            break
    return count, best


def tree_channels(rings: Channels, links: NodeLinks, speeds: Speeds) -> Channels:
    """As many trees as rings; a chain through a node has one hop less, so that it may be faster."""
    gpus = len(links.gpus)

    def fits(speed: float) -> bool:
        return links.kind == "alone" or (
            links.kind == "switch"
            and rings.count * speed * (gpus - 1) / gpus <= links.bandwidth + EPSILON
        )

    inside = _raised(rings.inside, 2 * rings.outside, speeds, fits)
    return Channels(rings.count, inside, rings.outside)


def nvls_channels(links: NodeLinks, nics: Sequence[float], speeds: Speeds) -> Channels | None:
    """One channel per GPU that pulls sums from the switch, over its link twice; None: none fits.

    With several nodes, only GPUs with a NIC of their own pull.
    """
    gpus = len(links.gpus)
    heads = min(MOST_CHANNELS, gpus, len(nics) or gpus)
    widest = max(nics) if nics else links.bandwidth

    def room(speed: float) -> int:
        within = int(links.bandwidth / speed + EPSILON) - 1
        return min(heads, within) if nics or within >= heads else 0

    count, best = 0, 0.0
    for speed in speeds:
        if speed <= widest + EPSILON and room(speed) > count:
            count, best = room(speed), speed
    if not count:
        return None
    outside = _raised(best, 2 * best, speeds, lambda s: not nics or s <= widest + EPSILON)
    return Channels(count, best, outside)


def _raised(start: float, goal: float, speeds: Speeds, fits: Callable[[float], bool]) -> float:
    """Steps up from `start` until a speed does not fit or `goal` is reached."""
    reached = start
    for speed in reversed(speeds):
        if reached >= goal - EPSILON:
            break
        if speed > reached + EPSILON:
            if not fits(speed):
                break
            reached = speed
    return reached
