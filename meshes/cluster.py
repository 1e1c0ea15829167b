"""A cluster: what one host is made of, how its parts are linked, and the fabric between hosts.

                       core                        levels, from the inside out:
              spine           spine                chip    one device
         leaf  leaf ..    leaf  leaf ..            node    one host
        node node node   node node node            domain  hosts of one NVLink switch or TPU slice
                                                   leaf    hosts under one set of leaf switches
    node: chip - nvswitch, chip - pcie_switch      spine   hosts joined without a core layer
          - socket - memory, pcie_switch - nic     core    everything

The description is compact, one host and the rule of the fabric, so that a question about 16,384
devices costs nothing; `meshes.levels` expands it into the levels of the network. Switches that
share their traffic evenly (the NVSwitch chips of a host, one layer of spines) are one node.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.torus import Torus, slice_shape

Level = Literal["chip", "node", "domain", "leaf", "spine", "core"]

HOST_PARTS = ("chip", "nvswitch", "pcie_switch", "socket", "memory", "nic")
# xgmi: AMD, chip to chip; ici: TPU, to the next chip of a torus (meshes/torus.py); c2c: a Grace CPU
# and its GPUs
Interconnect = Literal["nvlink", "xgmi", "ici", "c2c", "pcie", "upi", "memory", "network"]
# What moves bytes between hosts: InfiniBand's and RoCE's verbs, AWS's, Google's, HPE's, plain TCP.
Transport = Literal["verbs", "efa", "tcpx", "slingshot", "tcp"]
CpuMake = Literal["", "intel", "amd", "arm"]  # of a host; "": not stated


@dataclass(frozen=True)
class LinkSpec:
    """Links between the parts of two kinds, both ways, full duplex.

    `wiring` is "block" (the larger kind is divided evenly over the smaller), "all" (each with
    each), or "pairs" (those listed in `pairs`).
    """

    parts: tuple[str, str]
    kind: Interconnect
    wiring: Literal["block", "all", "pairs"] = "block"
    bandwidth: SourcedValue | None = None  # bytes/s, one physical link, one direction
    latency: SourcedValue | None = None  # s, one link; None of both: not measured yet
    count: int = 1  # physical links side by side
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def total_bandwidth(self) -> float | None:
        """bytes/s, one direction, of all physical links between two parts."""
        return None if self.bandwidth is None else self.count * self.bandwidth.value


@dataclass(frozen=True)
class Fabric:
    """A fat tree of leaf, spine and core switches over the NICs of the nodes.

    With `rails`, NIC number r of every node goes to leaf number r of its group. Oversubscription is
    the bandwidth down over the bandwidth up: 1 is full bisection.
    """

    leaf_nodes: SourcedValue  # nodes under one group of leaves
    rails: bool = True
    spine_nodes: SourcedValue | None = None  # most that spines alone can join; None: no spines
    pod_nodes: SourcedValue | None = None  # under one layer of spines once there is a core layer
    leaf_oversubscription: SourcedValue | None = None
    spine_oversubscription: SourcedValue | None = None
    hop_latency: SourcedValue | None = None  # s, one switch-to-switch link
    switch_ports: SourcedValue | None = None  # of one switch, in every layer
    has_sharp: bool = False  # the switches can add up what passes through them (SHARP)
    transport: Transport = "verbs"


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal hosts with n = devices_per_node: device d is chip d % n of node d // n."""

    name: str
    title: str
    accelerator: Accelerator
    nodes: int
    devices_per_node: int  # those used; the first ones of a node
    parts: Mapping[str, int] = field(hash=False)  # kind -> how many in one host, used or not
    links: tuple[LinkSpec, ...]
    layout: SourcedValue  # where counts of parts and wiring come from; its value: chips per host
    fabric: Fabric | None = None
    peer_access: bool = True  # False: traffic between chips and NICs passes through host memory
    virtual_devices: bool = False  # as many devices per node as asked for (a CPU's)
    domain_nodes: int = 1  # nodes that share one NVLink domain, or one slice of a torus
    has_nvls: bool = False  # the NVSwitches can add up (NVLink SHARP, Hopper on)
    cpu: CpuMake = ""  # NCCL chooses by it
    machine_numbers: tuple[int, ...] = ()  # of chips 0, 1, ... as the host counts them; (): alike
    torus: Torus | None = None  # links from chip to chip on a grid; each domain is one slice
    nvswitch_chips: SourcedValue | None = None  # of a node or domain; `parts` has them as one
    nvswitch_ports: SourcedValue | None = None  # of one of these chips, each as wide as a link
    host_memory: SourcedValue | None = None  # bytes of one host; None: not stated

    @property
    def devices(self) -> int:
        """Devices of the run."""
        return self.nodes * self.devices_per_node

    @property
    def nics(self) -> int:
        """NICs of one node that serve the devices used: those of the used chips, rounded up."""
        return math.ceil(self.parts.get("nic", 0) * self.devices_per_node / self.parts["chip"])

    @property
    def node_network_bandwidth(self) -> float:
        """bytes/s that one node can send, all its NICs in use together; 0 without a network."""
        link = network_link(self)
        return 0.0 if link is None else self.nics * (link.total_bandwidth or 0.0)


def torus_shape(cluster: Cluster) -> tuple[int, ...]:
    """Chips of one slice along each dimension; InputError if no shape has so many."""
    assert cluster.torus is not None
    chips = cluster.parts["chip"]
    if cluster.domain_nodes > 1 and cluster.devices_per_node < chips:
        raise InputError(
            f"a slice of {cluster.domain_nodes} hosts of {cluster.name} uses all {chips} chips of "
            f"each, got gpus_per_node={cluster.devices_per_node}; use one host or all its chips"
        )
    return slice_shape(cluster.torus, cluster.domain_nodes * cluster.devices_per_node)


def torus_link(torus: Torus) -> LinkSpec:
    """The link between neighbouring chips of a torus."""
    return LinkSpec(("chip", "chip"), "ici", "pairs", torus.bandwidth, torus.hop_latency)


def network_link(cluster: Cluster) -> LinkSpec | None:
    """The link between NICs and leaf switches; None for a single machine."""
    return next((link for link in cluster.links if link.parts == ("nic", "leaf")), None)


def level_nodes(cluster: Cluster) -> dict[Level, int]:
    """Nodes in one unit of each level from "node" on; levels that join nothing new are left out.

    >>> level_nodes(dgx_h100_with_512_nodes)
    {"node": 1, "leaf": 32, "spine": 128, "core": 512}
    """
    sizes: dict[Level, int] = {"node": 1, "domain": cluster.domain_nodes}
    fabric = cluster.fabric
    if fabric is not None:
        sizes["leaf"] = whole_domains(cluster, int(fabric.leaf_nodes.value))
        # All nodes are under one layer of spines as long as that layer can join them.
        spine = fabric.spine_nodes or fabric.leaf_nodes
        if fabric.spine_nodes and fabric.pod_nodes and cluster.nodes > spine.value:
            spine = fabric.pod_nodes
        sizes["spine"] = whole_domains(cluster, int(spine.value))
        sizes["core"] = cluster.nodes
    distinct: dict[Level, int] = {}
    for level, size in sizes.items():
        size = min(size, cluster.nodes)
        if not distinct or size > max(distinct.values()):
            distinct[level] = size
    return distinct


def whole_domains(cluster: Cluster, nodes: int) -> int:
    """`nodes` rounded down to a multiple of the NVLink domain or slice; at least one of them.

    Racks of 18 places with 16 trays each: the leaves of a rack, for up to 18 nodes, join 16.
    """
    return max(1, nodes // cluster.domain_nodes) * cluster.domain_nodes


def max_nodes(cluster: Cluster) -> int | None:
    """Most nodes that the fabric can join; None: no limit stated."""
    fabric = cluster.fabric
    if fabric is None:
        return cluster.domain_nodes
    if fabric.spine_nodes is None:
        return int(fabric.leaf_nodes.value)
    return None if fabric.pod_nodes is not None else int(fabric.spine_nodes.value)


def domain_split(nodes: int, domain_nodes: int) -> int:
    """Nodes per NVLink domain: the fewest domains of at most `domain_nodes` that divide evenly.

    32 compute trays in racks of 18: 2 racks of 16.
    """
    domains = math.ceil(nodes / domain_nodes)
    while nodes % domains:
        domains += 1
    return nodes // domains


# The wires of one host

Part = tuple[str, int]  # kind and number in its host


def unreached_parts(cluster: Cluster) -> list[str]:
    """Names of the parts of the first host that no links join to its first chip, sorted."""
    neighbours: dict[Part, set[Part]] = {part: set() for part in used_parts(cluster)}
    for one, other, _ in host_wires(cluster):
        neighbours[one].add(other)
        neighbours[other].add(one)
    seen: set[Part] = set()
    frontier = {("chip", 0)}
    if cluster.torus is not None:  # whose links join all chips
        frontier = {part for part in neighbours if part[0] == "chip"}
    while frontier:
        seen |= frontier
        frontier = {part for each in frontier for part in neighbours[each]} - seen
    return sorted(f"node0/{kind}{number}" for kind, number in neighbours.keys() - seen)


def host_wires(cluster: Cluster) -> Iterator[tuple[Part, Part, LinkSpec]]:
    """Both ends of every wire between two parts of a host that a run uses, and its links."""
    used, counts = set(used_parts(cluster)), cluster.parts
    for spec in cluster.links:
        first, second = spec.parts
        for i, j in wired_pairs(spec, counts.get(first, 0), counts.get(second, 0)):
            if (first, i) in used and (second, j) in used:
                yield (first, i), (second, j), spec


def used_parts(cluster: Cluster) -> Iterator[Part]:
    """Kind and number of the parts that a run uses: first devices, their NICs, and all others."""
    limits = {"chip": cluster.devices_per_node, "nic": cluster.nics}
    for kind, count in cluster.parts.items():
        yield from ((kind, number) for number in range(min(count, limits.get(kind, count))))


def wired_pairs(spec: LinkSpec, n: int, m: int) -> Iterator[tuple[int, int]]:
    """Number pairs that `spec` joins among `n` parts of its first kind and `m` of its second."""
    if spec.wiring == "pairs":
        yield from spec.pairs
    elif spec.wiring == "all" and spec.parts[0] == spec.parts[1]:
        yield from ((i, j) for i in range(n) for j in range(i + 1, n))
    elif spec.wiring == "all":
        yield from ((i, j) for i in range(n) for j in range(m))
    elif n >= m:
        yield from ((i, i * m // n) for i in range(n))
    else:
        yield from ((j * n // m, j) for j in range(m))
