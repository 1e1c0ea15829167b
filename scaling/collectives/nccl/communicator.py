"""A group of GPUs as NCCL sees it, with the channels that it makes of their links.

A node is an NVLink domain where there is one. NCCL sees one group of GPUs at a time: other groups
that use the same links at the same time do not enter its choice.

NCCL tries a list of speeds from the top down and counts the channels that fit at each. The speed
with the most bandwidth in all wins; the search ends where a speed is less than half of the best.
Fast channels are then split in two. Source: NVIDIA/nccl 2.30.7, src/graph/search.cc, in closed form
for machines whose GPUs are alike.

    8 A100  6 x 40 -> 12 x 20      8 H100  6 x 60 -> 12 x 30      8 B200  8 x 90 -> 16 x 45
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

import numpy as np

from scaling.collectives.contention import in_order
from scaling.collectives.nccl import constants as c
from scaling.collectives.nccl.constants import Speeds, step_value
from scaling.collectives.nccl.links import (
    EPSILON,
    NodeLinks,
    nic_speeds,
    nics_behind_cpu,
    node_links,
)
from scaling.collectives.run_lengths import counted
from scaling.meshes.cluster import Cluster

VENDOR = "NVIDIA"
NVLS_GPUS = 2  # fewest of a node (NVIDIA/nccl 2.30.7, src/transport/nvls.cc)
WIDE, WIDE_CHANNELS = 45.0, 16  # GB/s above which few channels are doubled again, on Hopper and on
HALF = 0.49  # the search ends at this fraction of the best speed
SPLIT_FROM = 25.0  # GB/s of a channel that is split in two
SPLIT_NEWER, FEW = 50.0, 4  # the same after Ampere, where there are more than FEW channels
NO_PATH = 0.1  # GB/s of the one channel where none fits


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
        return step_value(c.GENERATIONS, self.capability)

    @property
    def ranks_per_node(self) -> float:
        """Mean number of ranks on a node."""
        return self.ranks / self.nodes

    @property
    def connected_channels(self) -> int:
        """Channels once the rings are connected: each is used twice."""
        count = min(2 * c.MOST_CHANNELS, 2 * self.rings.count)
        wide = self.capability >= c.HOPPER and self.nodes > 1 and self.rings.inside > WIDE
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
    speeds = step_value(c.SPEEDS_ONE_NODE if nodes == 1 else c.SPEEDS_NODES, capability)
    rings = ring_channels(links, nics, speeds, capability)
    sums = cluster.has_nvls and links.kind == "switch" and len(chips) >= NVLS_GPUS
    near = nodes == 1 or not nics_behind_cpu(cluster, capability)
    return Communicator(
        ranks=ranks,
        nodes=nodes,
        capability=capability,
        cpu=cluster.cpu,
        nvlink=links.kind in ("switch", "pairs"),
        ll128=capability >= c.VOLTA and links.kind != "pcie" and near,
        rings=rings,
        trees=tree_channels(rings, links, speeds),
        nvls=nvls_channels(links, nics, speeds) if sums else None,
    )


def ring_channels(
    links: NodeLinks, nics: Sequence[float], speeds: Speeds, capability: int
) -> Channels:
    """Rings through the GPUs of a node and, with several nodes, its NICs (GB/s; () with one)."""

    def room(speed: float) -> int:
        outside = sum(int(nic / speed + EPSILON) for nic in nics) if nics else c.MOST_CHANNELS
        return min(c.MOST_CHANNELS, links.rings(speed), outside)

    widest = max(nics) if nics else links.widest
    total = links.total if links.kind != "alone" else max(nics, default=0.0)
    count, speed = most_bandwidth(speeds, widest, total, room)
    if not count:
        return Channels(1, NO_PATH, NO_PATH)
    newer = capability > c.AMPERE and speed < SPLIT_NEWER and count > FEW
    split = 2 * count if speed >= SPLIT_FROM and not newer else count
    pieces = ceil(min(split, c.MOST_CHANNELS) / count)
    return Channels(min(split, c.MOST_CHANNELS), speed / pieces, speed / pieces)


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
    heads = min(c.MOST_CHANNELS, gpus, len(nics) or gpus)
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
