"""A cluster as nodes and directed links: the ground of the replay and of max-flow bounds.

node0/chip3 --nvlink--> node0/nvswitch0 --nvlink--> node0/chip5
node0/nic3 --network--> leaf0.3 --network--> spine0           (leaf group 0, rail 3)

Pricing reads the levels of a cluster (`scaling.meshes.levels`) instead; both start from its links.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from scaling.meshes.cluster import (
    Cluster,
    Fabric,
    LinkSpec,
    level_nodes,
    torus_link,
    torus_shape,
    used_parts,
    whole_domains,
    wired_pairs,
)
from scaling.meshes.link_figures import bandwidth_of, latency_of
from scaling.meshes.torus import Torus, coordinates, wraparound


class Node(NamedTuple):
    """A place that links start from or end at."""

    name: str
    kind: str  # one of HOST_PARTS, "leaf", "spine" or "core"


class Link(NamedTuple):
    """One direction of a connection between two nodes."""

    source: str
    target: str
    bandwidth: float  # bytes/s
    latency: float  # s
    kind: str  # as of LinkSpec


class Graph(NamedTuple):
    """All nodes and links of a cluster."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


def chip_name(cluster: Cluster, device: int) -> str:
    """Name of the node that device number `device` is."""
    node, chip = divmod(device, cluster.devices_per_node)
    return f"node{node}/chip{chip}"


def expand(cluster: Cluster) -> Graph:
    """Nodes and links of the whole cluster, used devices and NICs only.

    Raises:
        InputError: a link has not been measured yet (`host` before calibration).
    """
    nodes = {node.name: node for pair in _wires(cluster) for node in pair[:2]}
    links = []
    for a, b, spec, share in _wires(cluster):
        speed = share * bandwidth_of(cluster, spec), latency_of(cluster, spec), spec.kind
        links += [Link(a.name, b.name, *speed), Link(b.name, a.name, *speed)]
    return Graph(tuple(nodes.values()), tuple(links))


Wire = tuple[Node, Node, LinkSpec, float]  # two ends, the spec, times its bandwidth


def _wires(cluster: Cluster) -> Iterator[Wire]:
    for spec in cluster.links:
        for node in range(cluster.nodes):
            yield from _host_wires(cluster, spec, node)
    if cluster.torus is not None:
        yield from _torus_wires(cluster, cluster.torus)
    if cluster.fabric is not None and cluster.nodes > 1:
        yield from _fabric_wires(cluster, cluster.fabric)


def _host_wires(cluster: Cluster, spec: LinkSpec, node: int) -> Iterator[Wire]:
    first, second = spec.parts
    if second == "leaf":
        if cluster.nodes > 1:
            for nic in range(cluster.nics):
                leaf = Node(leaf_name(cluster, node, nic), "leaf")
                yield Node(f"node{node}/nic{nic}", "nic"), leaf, spec, 1.0
        return
    used = set(used_parts(cluster))
    for i, j in wired_pairs(spec, cluster.parts.get(first, 0), cluster.parts.get(second, 0)):
        if (first, i) in used and (second, j) in used:
            a, b = _part(cluster, node, first, i), _part(cluster, node, second, j)
            yield a, b, spec, 1.0


def _torus_wires(cluster: Cluster, torus: Torus) -> Iterator[Wire]:
    """Every slice by itself: the chips of domain_nodes nodes, numbered on from its first one."""
    link = torus_link(torus)
    pairs = list(torus_links(torus, torus_shape(cluster)))
    chips = cluster.domain_nodes * cluster.devices_per_node
    for first in range(0, cluster.devices, chips):
        for a, b in pairs:
            names = chip_name(cluster, first + a), chip_name(cluster, first + b)
            yield Node(names[0], "chip"), Node(names[1], "chip"), link, 1.0


def torus_links(torus: Torus, shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Pairs of chip numbers that a link joins, each pair once."""
    chips = math.prod(shape)
    number = {coordinates(torus, shape, device): device for device in range(chips)}
    closed = wraparound(torus, shape)
    for place, device in number.items():
        for dim, size in enumerate(shape):
            last = place[dim] == size - 1
            if not last or (closed[dim] and size > 2):
                step = (place[dim] + 1) % size
                yield device, number[(*place[:dim], step, *place[dim + 1 :])]


def _fabric_wires(cluster: Cluster, fabric: Fabric) -> Iterator[Wire]:
    """Leaves to spines, spines to the core: as wide as all below over the oversubscription."""
    network = next(spec for spec in cluster.links if spec.parts == ("nic", "leaf"))
    hop = LinkSpec(("leaf", "spine"), "network", "all", network.bandwidth, fabric.hop_latency)
    units = level_nodes(cluster)
    nics_per_leaf = 1 if fabric.rails else cluster.nics
    above_leaf = fabric.leaf_oversubscription.value if fabric.leaf_oversubscription else 1.0
    above_spine = fabric.spine_oversubscription.value if fabric.spine_oversubscription else 1.0
    leaf_nodes = min(whole_domains(cluster, int(fabric.leaf_nodes.value)), cluster.nodes)
    leaf_width = leaf_nodes * nics_per_leaf * network.count / above_leaf
    if "spine" not in units and "core" not in units:
        return
    spine_nodes = units.get("spine", cluster.nodes)
    for first in range(0, cluster.nodes, leaf_nodes):
        spine = Node(f"spine{first // spine_nodes}", "spine")
        for rail in range(cluster.nics if fabric.rails else 1):
            yield Node(leaf_name(cluster, first, rail), "leaf"), spine, hop, leaf_width
    if "core" in units:
        width = spine_nodes * cluster.nics * network.count / (above_leaf * above_spine)
        for pod in range(-(-cluster.nodes // spine_nodes)):
            yield Node(f"spine{pod}", "spine"), Node("core", "core"), hop, width


def leaf_name(cluster: Cluster, node: int, nic: int) -> str:
    """Name of the leaf switch that NIC number `nic` of a node hangs on."""
    assert cluster.fabric is not None
    group = node // whole_domains(cluster, int(cluster.fabric.leaf_nodes.value))
    return f"leaf{group}.{nic if cluster.fabric.rails else 0}"


def _part(cluster: Cluster, node: int, kind: str, index: int) -> Node:
    if kind == "nvswitch" and cluster.domain_nodes > 1:
        return Node(f"domain{node // cluster.domain_nodes}/{kind}{index}", kind)
    return Node(f"node{node}/{kind}{index}", kind)
