"""Speeds that NCCL counts for the links of a node, in GB/s, and the rings that they hold.

    switch   every GPU on an NVSwitch: as many rings as the bandwidth of a GPU holds
    pairs    links between pairs of GPUs: the rings that they hold at once (scaling.meshes.rings)
    pcie     one ring in the order of the GPUs, limited by its most loaded link
    alone    one GPU of a node: no limit

The speeds are NCCL's own (NVIDIA/nccl 2.30.7, src/graph/topo.h and topo.cc), the wiring is the
cluster's. PCIe counts 12 GB/s for sixteen lanes of the third generation.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scaling.collectives.nccl import constants as c
from scaling.collectives.nccl.constants import step_value
from scaling.meshes.cluster import Cluster, LinkSpec, network_link
from scaling.meshes.rings import Links, direct_links, ring_count

GB = 1e9
PCIE_SHARE = 12 / 15.75  # NCCL's 12 GB/s of 8 GT/s x 16 lanes x 128/130 (Gen3 x16), and so on
INTEL_DETOUR = 6 / 5  # through an Intel CPU, traffic between GPUs comes in small packets
EPSILON = 1e-6
BYTES_PER_TRANSFER = 2  # of a link between sockets


@dataclass(frozen=True)
class NodeLinks:
    """The links among the GPUs of one node that take part."""

    kind: Literal["switch", "pairs", "pcie", "alone"]
    gpus: tuple[int, ...]  # chips of the node
    bandwidth: float = 0.0  # GB/s: out of one GPU, of one link of a pair, of one ring on PCIe
    links: Links = ()  # of pairs

    @property
    def total(self) -> float:
        """GB/s out of one GPU: a search that reaches it has found the best."""
        if self.kind != "pairs":
            return self.bandwidth
        return self.bandwidth * max(sum(self.links[i][j] for j in self.gpus) for i in self.gpus)

    @property
    def widest(self) -> float:
        """GB/s from a GPU to another, at most."""
        if self.kind != "pairs":
            return self.bandwidth
        return self.bandwidth * max(self.links[i][j] for i in self.gpus for j in self.gpus)

    def rings(self, speed: float) -> int | None:
        """How many rings of that speed fit at once; None: any number."""
        if self.kind == "alone":
            return None
        if self.kind != "pairs":
            return int(self.bandwidth / speed + EPSILON)
        if speed <= self.bandwidth:  # rings that share a link are those of its pair
            return ring_count(self.links, self.gpus) * int(self.bandwidth / speed + EPSILON)
        joined = tuple(tuple(int(n * self.bandwidth / speed) for n in row) for row in self.links)
        return ring_count(joined, self.gpus)


def node_links(cluster: Cluster, gpus: tuple[int, ...], capability: int) -> NodeLinks:
    """The links that rings through `gpus` (chips of a node, or of an NVLink domain) would use."""
    if len(gpus) == 1:
        return NodeLinks("alone", gpus)
    one = step_value(c.NVLINK_SPEED, capability)
    switched = next((j for j in cluster.links if j.parts == ("chip", "nvswitch")), None)
    if switched is not None:
        return NodeLinks("switch", gpus, switched.count * one)
    links = _pair_links(cluster)
    if any(map(any, links)) and ring_count(links, gpus):
        return NodeLinks("pairs", gpus, one, links)
    return NodeLinks("pcie", gpus, ring_over_pcie(cluster, gpus))


def _pair_links(cluster: Cluster) -> Links:
    """NVLinks between every two GPUs of a node that are joined without a switch."""
    chips = range(cluster.parts["chip"])
    found = [j for j in cluster.links if j.kind == "nvlink" and j.parts == ("chip", "chip")]
    everywhere = sum(spec.count for spec in found if spec.wiring == "all")
    listed = direct_links(cluster, ("nvlink",))
    return tuple(tuple(listed[i][j] + everywhere * (i != j) for j in chips) for i in chips)


def ring_over_pcie(cluster: Cluster, gpus: Sequence[int]) -> float:
    """GB/s of a ring through `gpus` in their order; 0 where links of the node have no figures.

    Without peer access, and between switches, a hop climbs to the CPU.
    """
    capacity: dict[tuple, float] = {}
    load: dict[tuple, float] = defaultdict(float)
    for source, target in zip(gpus, (*gpus[1:], *gpus[:1]), strict=True):
        for link, weight in _hop(cluster, source, target):
            load[link] += weight
            capacity[link] = _capacity(cluster, link)
    return min((capacity[link] / load[link] for link in load), default=0.0)


def _hop(cluster: Cluster, source: int, target: int) -> list[tuple[tuple, float]]:
    """Links that a hop crosses, and how much it takes of each per byte."""
    switches = [_above(cluster, gpu, "pcie_switch") for gpu in (source, target)]
    sockets = [_above(cluster, gpu, "socket") for gpu in (source, target)]
    ends: list[tuple] = [("chip", source, "up"), ("chip", target, "down")]
    if switches[0] == switches[1] is not None and cluster.peer_access:
        return [(link, 1.0) for link in ends]
    if switches[0] is not None:
        ends += [("pcie_switch", switches[0], "up"), ("pcie_switch", switches[1], "down")]
    if sockets[0] != sockets[1]:
        return [(link, 1.0) for link in (*ends, ("socket", *sockets))]
    detour = INTEL_DETOUR if cluster.cpu == "intel" else 1.0
    return [(link, detour) for link in ends]


def _above(cluster: Cluster, gpu: int, part: str) -> int | None:
    """The switch or socket that a GPU hangs below; None: there is no such part."""
    count = cluster.parts.get(part, 0)
    return gpu * count // cluster.parts["chip"] if count else None


def _capacity(cluster: Cluster, link: tuple) -> float:
    """GB/s of one direction."""
    if link[0] == "socket":
        return socket_speed(cluster)
    spec = next((j for j in cluster.links if j.kind == "pcie" and j.parts[0] == link[0]), None)
    return pcie_speed(spec)


def pcie_speed(spec: LinkSpec | None) -> float:
    """GB/s that NCCL counts for a PCIe link; 0 without one."""
    return PCIE_SHARE * (spec.total_bandwidth or 0.0) / GB if spec is not None else 0.0


def socket_speed(cluster: Cluster) -> float:
    """GB/s that NCCL counts between two sockets, by the make of the CPUs."""
    if cluster.cpu == "intel":
        spec = next((j for j in cluster.links if j.parts == ("socket", "socket")), None)
        rate = spec.bandwidth.value / GB / BYTES_PER_TRANSFER if spec and spec.bandwidth else 0.0
        return step_value(c.INTEL_SOCKETS, int(rate + EPSILON))
    return c.SOCKETS.get(cluster.cpu, c.UNKNOWN_SOCKETS)


def nic_speeds(cluster: Cluster, gpus: int) -> tuple[float, ...]:
    """GB/s of each NIC close to `gpus` of a node; several of one GPU count as one.

    Plugins of clouds join the NICs of a GPU, and so does NCCL those of one card.
    """
    spec = network_link(cluster)
    if spec is None or not cluster.nics:
        return ()
    per_gpu = cluster.nics / cluster.devices_per_node
    count = max(1, round(min(1.0, per_gpu) * gpus))
    speed = max(1.0, per_gpu) * (spec.total_bandwidth or 0.0) / GB
    host = next((j for j in cluster.links if j.parts[0] == "chip" and j.kind == "pcie"), None)
    own = next((j for j in cluster.links if j.parts[0] == "nic" and j.kind == "pcie"), None)
    limits = [pcie_speed(host)] if host is not None else []
    limits += [max(1.0, per_gpu) * pcie_speed(own)] if own is not None else []
    return (min([speed, *limits]),) * count


def far_nics(cluster: Cluster, capability: int) -> bool:
    """Whether traffic from a GPU to its NIC passes through a CPU, where LL128 is not safe."""
    own = next((j for j in cluster.links if j.parts[0] == "nic" and j.parts[1] != "leaf"), None)
    coherent = any(j.kind == "c2c" for j in cluster.links) and capability >= c.HOPPER
    return own is not None and own.parts[1] == "socket" and not coherent
