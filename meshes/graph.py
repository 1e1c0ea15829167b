"""A cluster as nodes and directed links: for the check of connectivity and for tests' bounds.

Pricing reads the levels of a cluster, not this graph; max-flow bounds and the message-level replay
of `tests/oracle` are derived from it.

node0/chip3 --nvlink--> node0/nvswitch0 --nvlink--> node0/chip5
node0/nic3 --network--> leaf0.3 --network--> spine0           (leaf group 0, rail 3)
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaling.meshes.cluster import (
    Cluster,
    Fabric,
    LinkSpec,
    level_nodes,
    torus_link,
    torus_shape,
    whole_domains,
)
from scaling.meshes.errors import InputError
from scaling.meshes.torus import Torus, torus_links


@dataclass(frozen=True)
class Node:
    """A place that links start from or end at."""

    name: str
    kind: str  # one of HOST_PARTS and FABRIC_PARTS


@dataclass(frozen=True)
class Link:
    """One direction of a connection between two nodes."""

    source: str
    target: str
    bandwidth: float  # bytes/s
    latency: float  # s
    kind: str  # one of LINK_KINDS


@dataclass(frozen=True)
class Graph:
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
        bandwidth, latency = _measured(cluster, spec)
        links.append(Link(a.name, b.name, share * bandwidth, latency, spec.kind))
        links.append(Link(b.name, a.name, share * bandwidth, latency, spec.kind))
    return Graph(tuple(nodes.values()), tuple(links))


def unreached(cluster: Cluster) -> list[str]:
    """Names of the nodes that the first chip cannot reach; empty for a sound cluster."""
    neighbours: dict[str, set[str]] = {}
    for a, b, _, _ in _wires(cluster):
        neighbours.setdefault(a.name, set()).add(b.name)
        neighbours.setdefault(b.name, set()).add(a.name)
    everything = neighbours.keys() | set(_part_names(cluster))
    seen, frontier = set(), {chip_name(cluster, 0)}
    while frontier:
        seen |= frontier
        frontier = {n for name in frontier for n in neighbours.get(name, ())} - seen
    return sorted(everything - seen)


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
    for i, j in _pairs(spec, cluster.parts.get(first, 0), cluster.parts.get(second, 0)):
        if _used(cluster, first, i) and _used(cluster, second, j):
            a, b = _part(cluster, node, first, i), _part(cluster, node, second, j)
            yield a, b, spec, 1.0


def _pairs(spec: LinkSpec, n: int, m: int) -> Iterator[tuple[int, int]]:
    """Index pairs that `spec` wires among `n` parts of its first kind and `m` of its second."""
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


def _torus_wires(cluster: Cluster, torus: Torus) -> Iterator[Wire]:
    """Every slice by itself: the chips of domain_nodes nodes, numbered on from its first one."""
    link = torus_link(torus)
    pairs = list(torus_links(torus, torus_shape(cluster)))
    chips = cluster.domain_nodes * cluster.devices_per_node
    for first in range(0, cluster.devices, chips):
        for a, b in pairs:
            names = chip_name(cluster, first + a), chip_name(cluster, first + b)
            yield Node(names[0], "chip"), Node(names[1], "chip"), link, 1.0


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


def _used(cluster: Cluster, kind: str, index: int) -> bool:
    """Whether the run uses this part: the first devices of a node, and their NICs."""
    limits = {"chip": cluster.devices_per_node, "nic": cluster.nics}
    return index < limits.get(kind, cluster.parts.get(kind, 0))


def _part_names(cluster: Cluster) -> Iterator[str]:
    for node in range(cluster.nodes):
        for kind, count in cluster.parts.items():
            for i in range(count):
                if _used(cluster, kind, i):
                    yield _part(cluster, node, kind, i).name


def _measured(cluster: Cluster, spec: LinkSpec) -> tuple[float, float]:
    """Bandwidth and latency of all links of the spec together, or InputError."""
    if spec.total_bandwidth is None or spec.latency is None:
        raise InputError(
            f"{cluster.name}: the {spec.kind} links {' - '.join(spec.parts)} have no measured "
            "bandwidth or latency yet; run `scaling calibrate`"
        )
    return spec.total_bandwidth, spec.latency.value
