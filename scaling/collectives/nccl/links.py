"""Speeds that NCCL counts for the links of a node, in GB/s, and the rings that they hold.

    switch   every GPU on an NVSwitch: as many rings as the bandwidth of a GPU holds
    pairs    links between pairs of GPUs: the rings that they hold at once (scaling.meshes.rings)
    pcie     one ring in the order of the GPUs, limited by its most loaded link
    alone    one GPU of a node: no limit

The links are those of the levels of a cluster (`scaling.meshes.levels`); NCCL counts a share of
their rated bandwidth (NVIDIA/nccl 2.30.7, src/graph/topo.h and topo.cc).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.collectives.nccl import constants as c
from scaling.collectives.nccl.constants import step_value
from scaling.meshes.cluster import Cluster, network_link
from scaling.meshes.levels import levels
from scaling.meshes.rings import Links, ring_count

GB = 1e9
EPSILON = 1e-6


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
            return c.MOST_CHANNELS
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
    speed = step_value(c.NVLINK_SHARE, capability) * first.bandwidth / GB
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
    detour = c.INTEL_DETOUR if cluster.cpu == "intel" else 1.0
    weight = np.where(np.logical_and(climbs, np.logical_not(changes_socket)), detour, 1.0)
    speeds = []
    for name, level in pcie.items():
        speed = c.PCIE_SHARE * level.bandwidth / GB
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
        return step_value(c.INTEL_SOCKETS, int(rate / c.BYTES_PER_TRANSFER + EPSILON))
    return c.SOCKETS.get(cluster.cpu, c.UNKNOWN_SOCKETS)


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
            speeds.append(links * c.PCIE_SHARE * (pcie.total_bandwidth or 0.0) / GB)
    return (min(speeds),) * count


def nics_behind_cpu(cluster: Cluster, capability: int) -> bool:
    """True if traffic from a GPU to its NIC passes through a CPU, where LL128 is not safe.

    From Hopper on, NCCL lets LL128 pass through a CPU that joins its GPU by NVLink-C2C.
    """
    nic = next((j for j in cluster.links if j.parts[0] == "nic" and j.parts[1] != "leaf"), None)
    coherent = any(j.kind == "c2c" for j in cluster.links) and capability >= c.HOPPER
    return nic is not None and nic.parts[1] == "socket" and not coherent
