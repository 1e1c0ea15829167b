"""The network levels of a cluster, one table: it prices collectives, and `cluster show` prints it.

    level             link      units   out of one unit   hop      of 4 DGX H100
    NVLink of a chip  nvlink       32          450 GB/s   0.6 us
    NICs of a node    network       4          400 GB/s   2.7 us
    NIC of a chip     network      32           50 GB/s   with the NICs of its node

A unit is a set of devices that leaves by the same links: a chip, a PCIe switch, a node, a group of
leaf switches. A level says where those links lead (its region), how wide they are, and what a hop
from one unit to the next takes. NVLink and ICI serve a node, an NVLink domain or a slice; all other
levels serve the whole cluster. Some levels only bound the bytes: their hops belong to another level
(`own_hops` is false), whatever the latencies are.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from scaling.meshes.cluster import (
    Cluster,
    Fabric,
    Level,
    LinkSpec,
    level_nodes,
    network_link,
    torus_link,
    torus_shape,
)
from scaling.meshes.link_figures import (
    bandwidth_of,
    latency_of,
    link_of,
    nic_bandwidth,
    node_bandwidth,
    outward_bandwidth,
    path_latency,
    switch_latency,
)
from scaling.meshes.rings import FAST, Links, direct_links
from scaling.meshes.torus import TorusGrid, torus_grid

LINK_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI"}
NETWORK_NAMES: dict[Level, str] = {
    "node": "NICs of a node",
    "domain": "NICs of an NVLink domain",
    "leaf": "uplinks of a leaf group",
    "spine": "uplinks of a spine layer",
}
SLICE = "NICs of a slice"
TO_CPU = (("chip", "pcie_switch"), ("chip", "socket"))  # links of a chip that lead to its CPU


@dataclass(frozen=True, eq=False)
class LinkLabels:
    """Labels of each device at one level: int arrays [devices], non-decreasing."""

    unit: np.ndarray  # whose traffic leaves together
    pool: np.ndarray  # the links that carry it: several units may share one pool
    region: np.ndarray  # that the links serve
    parent: np.ndarray  # the next larger unit: neighbours of a ring lie in one parent

    def __post_init__(self) -> None:
        for labels in (self.unit, self.pool, self.region, self.parent):
            assert bool((labels[1:] >= labels[:-1]).all())


@dataclass(frozen=True, eq=False)
class NetworkLevel:
    """The links by which every unit of one level reaches the rest of its region."""

    name: str  # "NICs of a node"
    link: str  # "nvlink", "xgmi", "ici", "pcie" or "network"
    bandwidth: float  # bytes/s of one pool, one direction; of one link of a pair or torus
    hop_latency: float  # s, from one unit to the next; 0 is a legal latency
    labels: LinkLabels
    own_hops: bool = True  # False: its hops are counted with those of another level
    transport: str = ""  # of a network: as scaling.meshes.cluster.Transport
    staged: bool = False  # every byte is written to host memory and read from there
    most_peers: int = 0  # units of a group that read one another directly; 0: all, if not staged
    innermost: bool = False  # that of one chip to a switch, or to the other chips
    peers: int = 0  # chips with a link to each of them; 0: a switch reaches all
    pair_links: Links = ()  # links between pairs of chips, whose rings share the bytes
    without_rings: bool = False  # serves groups only that have no ring over links between pairs
    point_to_point: bool = False  # serves only what goes from one chip to another: NCCL's rings
    # and trees take all NICs in turn
    grid: TorusGrid | None = None  # the torus whose links these are
    can_reduce: bool = False  # its switches add up what passes (NVLink SHARP, SHARP)

    @property
    def units(self) -> int:
        """Number of units in the cluster."""
        return _distinct(self.labels.unit)

    @property
    def pools(self) -> int:
        """Number of pools of links, each with `bandwidth`."""
        return _distinct(self.labels.pool)


def _distinct(labels: np.ndarray) -> int:
    """Return how many labels there are; np.unique takes half a minute for ten million devices."""
    return 1 + int((labels[1:] != labels[:-1]).sum())  # they never decrease


@lru_cache(maxsize=64)
def levels(cluster: Cluster) -> tuple[NetworkLevel, ...]:
    """All network levels from the chip outwards; InputError for links without figures.

    Several hosts of virtual devices have those between them: inside, `scaling calibrate` measures.
    """
    hosts = cluster.virtual_devices and cluster.nodes > 1
    return (*([] if hosts else _inside_a_node(cluster)), *_between_nodes(cluster))


def _inside_a_node(cluster: Cluster) -> list[NetworkLevel]:
    """Levels of a node, of an NVLink domain, or of a slice of a torus."""
    if cluster.torus is not None:
        return [_torus_level(cluster)]
    fast = [j for j in cluster.links if j.kind in FAST]
    for links in fast:
        if links.parts[1] == "nvswitch" or links.wiring == "all":  # not those between pairs
            return [_switched_level(cluster, links)]
    pairs = [j for j in fast if j.wiring == "pairs" and j.bandwidth]
    if not pairs:
        return _pcie_levels(cluster)
    pcie = _pcie_levels(cluster) if any(j.parts in TO_CPU for j in cluster.links) else []
    return [_pair_level(cluster, pairs), *(replace(level, without_rings=True) for level in pcie)]


def _domain_labels(cluster: Cluster) -> LinkLabels:
    """Every chip is a unit in its node, NVLink domain or slice."""
    devices = np.arange(cluster.devices)
    domain = devices // (cluster.devices_per_node * cluster.domain_nodes)
    return LinkLabels(devices, devices, domain, domain)


def _switched_level(cluster: Cluster, links: LinkSpec) -> NetworkLevel:
    """A chip's links to a switch, or to each of the others: then a group uses those among it."""
    switch = links.parts[1] == "nvswitch"
    peers = 0 if switch else cluster.devices_per_node - 1
    return NetworkLevel(
        f"{LINK_NAMES[links.kind]} of a chip",
        links.kind,
        max(1, peers) * bandwidth_of(cluster, links),
        (2 if switch else 1) * latency_of(cluster, links),
        _domain_labels(cluster),
        innermost=True,
        peers=peers,
        can_reduce=cluster.has_nvls,
    )


def _pair_level(cluster: Cluster, pairs: list[LinkSpec]) -> NetworkLevel:
    """Links between pairs of chips; each ring over them is as fast as the slowest kind."""
    bandwidth, kind = min(j.bandwidth.value for j in pairs if j.bandwidth), pairs[0].kind
    chips = cluster.devices_per_node
    return NetworkLevel(
        f"{LINK_NAMES[kind]} of a chip",
        kind,
        bandwidth,
        max(latency_of(cluster, j) for j in pairs),
        _domain_labels(cluster),
        innermost=True,
        pair_links=tuple(row[:chips] for row in direct_links(cluster, FAST)[:chips]),
    )


def _torus_level(cluster: Cluster) -> NetworkLevel:
    """One link from a chip of a slice to the next; a group uses those of its dimensions."""
    assert cluster.torus is not None
    links, chips = torus_link(cluster.torus), cluster.domain_nodes * cluster.devices_per_node
    grid = torus_grid(cluster.torus, torus_shape(cluster), chips, cluster.devices)
    bandwidth, hop = bandwidth_of(cluster, links), latency_of(cluster, links)
    return NetworkLevel(
        "ICI link of a chip", "ici", bandwidth, hop, _domain_labels(cluster), grid=grid
    )


def _pcie_levels(cluster: Cluster) -> list[NetworkLevel]:
    """The link of each chip, of the PCIe switch above it, and those between sockets.

    Without peer access every byte is written to host memory and read from there: it loads the
    links of the switch even between two chips below it, upwards and downwards once each. Where the
    driver allows peer access, NCCL uses it below one PCIe switch, and between two chips on AMD
    (NVIDIA/nccl 2.30.7, src/graph/paths.cc, the default level of P2P).
    """
    links = next((j for j in cluster.links if j.parts in TO_CPU), None)
    links = links or link_of(cluster, "chip", "pcie")  # raises: there are none
    devices, node = np.arange(cluster.devices), _above(cluster, "node")
    own_nics = any(j.parts == ("chip", "nic") for j in cluster.links)
    reach = node if own_nics else np.zeros_like(devices)
    staged = not cluster.peer_access
    hop = 2 * path_latency(cluster, "chip", "socket")
    labels = LinkLabels(devices, devices, reach, node)
    bandwidth = bandwidth_of(cluster, links)
    most = 0 if staged else 2 if cluster.cpu == "amd" else 1
    chip = NetworkLevel("PCIe of a chip", "pcie", bandwidth, hop, labels, staged=staged)
    if links.parts[1] != "pcie_switch":
        return [replace(chip, most_peers=most), *_socket_levels(cluster)]
    switch = _above(cluster, "pcie_switch")
    # a switch with NICs of its own does not carry what leaves the node
    has_nics = cluster.peer_access and any(j.parts == ("nic", "pcie_switch") for j in cluster.links)
    unit, region = switch if cluster.peer_access else devices, node if has_nics else reach
    shared = NetworkLevel(
        "PCIe of a switch",
        "pcie",
        bandwidth_of(cluster, link_of(cluster, "pcie_switch", "pcie", "socket")),
        hop,
        LinkLabels(unit, switch, region, node),
        own_hops=False,
        staged=staged,
        most_peers=most,
    )
    return [chip, shared, *_socket_levels(cluster)]


def _socket_levels(cluster: Cluster) -> list[NetworkLevel]:
    """The links between the sockets of a node; their hop is one with PCIe's."""
    sockets = cluster.parts.get("socket", 1)
    node, socket = _above(cluster, "node"), _above(cluster, "socket")
    labels = LinkLabels(socket, socket, node, node)
    return [
        NetworkLevel(
            "links between sockets",
            "pcie",
            (sockets - 1) * bandwidth_of(cluster, links),
            latency_of(cluster, links),
            labels,
            own_hops=False,
        )
        for links in cluster.links
        if links.parts == ("socket", "socket") and sockets > 1
    ]


def _above(cluster: Cluster, kind: str) -> np.ndarray:
    """Number of the node, or of its part of a kind, that each device is in or below: [devices]."""
    node, chip = np.divmod(np.arange(cluster.devices), cluster.devices_per_node)
    count = cluster.parts.get(kind, 1)
    return node * count + chip * count // cluster.parts["chip"]


def _between_nodes(cluster: Cluster) -> list[NetworkLevel]:
    """NICs, leaves and spines: a level for every unit below the largest, and each chip's NIC."""
    nodes = dict(level_nodes(cluster))
    if "domain" in nodes:
        del nodes["node"]  # has no NICs of its own
    links, fabric = network_link(cluster), cluster.fabric
    if len(nodes) == 1 or links is None or fabric is None:
        return []
    devices = np.arange(cluster.devices)
    units = [devices // (cluster.devices_per_node * size) for size in nodes.values()]
    everywhere = np.zeros_like(devices)
    hop = 0.0 if cluster.virtual_devices else 2 * path_latency(cluster, "chip", "leaf")
    names = NETWORK_NAMES if cluster.torus is None else NETWORK_NAMES | {"domain": SLICE}
    network = [
        NetworkLevel(
            names[level],
            "network",
            size * node_bandwidth(cluster, fabric, links, size),
            hop + switch_latency(cluster, fabric, larger),
            LinkLabels(unit, unit, everywhere, parent),
            transport=fabric.transport,
            can_reduce=fabric.has_sharp,
        )
        for ((level, size), (_, larger)), (unit, parent) in zip(
            pairwise(nodes.items()), pairwise(units), strict=True
        )
    ]
    return [*network, *_nic_levels(cluster, fabric, links, units[0], hop)]


def _nic_levels(
    cluster: Cluster, fabric: Fabric, links: LinkSpec, unit: np.ndarray, hop: float
) -> list[NetworkLevel]:
    """Levels of the NICs that serve one chip, or of the nearest NIC where chips share them.

    Chips with NVLink or xGMI reach NICs of the CPU through their PCIe switch, which carries nothing
    else then; of others `_pcie_levels` has it with all that it carries.
    """
    devices = np.arange(cluster.devices)
    everywhere, nic = np.zeros_like(devices), nic_bandwidth(cluster, links)
    width = max(1.0, cluster.nics / cluster.devices_per_node) * nic
    chip = NetworkLevel(
        "NIC of a chip",
        "network",
        min(width, outward_bandwidth(cluster)),
        hop,
        LinkLabels(unit, devices, everywhere, unit),
        own_hops=False,
        transport=fabric.transport,
        can_reduce=fabric.has_sharp,
    )
    ways = [chip]
    fast = any(j.kind in FAST for j in cluster.links)
    if fast and {("chip", "pcie_switch"), ("nic", "socket")} <= {j.parts for j in cluster.links}:
        way = bandwidth_of(cluster, link_of(cluster, "pcie_switch", "pcie", "socket"))
        labels = LinkLabels(unit, _above(cluster, "pcie_switch"), everywhere, unit)
        ways += [replace(chip, name="PCIe switch to the NICs", bandwidth=way, labels=labels)]
    if cluster.nics >= cluster.devices_per_node:
        return ways
    node, below = np.divmod(devices, cluster.devices_per_node)
    nearest = node * cluster.nics + below * cluster.nics // cluster.devices_per_node
    labels = LinkLabels(unit, nearest, everywhere, unit)
    shared = replace(
        chip, name="NIC of a few chips", bandwidth=nic, labels=labels, point_to_point=True
    )
    return [shared, *ways]
