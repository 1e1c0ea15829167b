"""Bandwidth and latency of a cluster's links: by the parts they join, and out of its nodes."""

from scaling.meshes.cluster import Cluster, Fabric, LinkSpec, level_nodes, whole_domains
from scaling.meshes.errors import InputError
from scaling.meshes.rings import FAST

BETWEEN_CHIPS = (*FAST, "ici")  # links that do not lead out of a node
LINK_RATE = "SCALING_LINK_RATE"  # environment of a testbed's processes: bytes/s of a host's link


def path_latency(cluster: Cluster, start: str, goal: str) -> float:
    """Latency in s of the fewest links between two kinds of part, without NVLink, or InputError."""
    reached = {start: 0.0}
    frontier = [start]
    while frontier and goal not in reached:
        steps = [(p, j) for p in frontier for j in cluster.links if p in j.parts]
        frontier = []
        for part, link in steps:
            other = link.parts[1] if link.parts[0] == part else link.parts[0]
            if other not in reached and link.kind != "nvlink":
                reached[other] = reached[part] + latency_of(cluster, link)
                frontier.append(other)
    if goal not in reached:
        raise InputError(f"{cluster.name}: no link leads from a {start} to a {goal}")
    return reached[goal]


def link_of(cluster: Cluster, part: str, kind: str, other: str | None = None) -> LinkSpec:
    """The first links of `kind` from `part` (to `other`); InputError if there are none."""
    for link in cluster.links:
        if link.kind == kind and link.parts[0] == part and other in (None, link.parts[1]):
            return link
    raise InputError(
        f"{cluster.name}: no {kind} link from a {part} that could join all chips of a node; "
        "`host` has none before `scaling calibrate`"
    )


def bandwidth_of(cluster: Cluster, link: LinkSpec) -> float:
    """bytes/s between two parts, one direction; InputError if the cluster states none."""
    return _stated(link.total_bandwidth, cluster, link)


def latency_of(cluster: Cluster, link: LinkSpec) -> float:
    """Latency of one link in s; InputError if the cluster states none."""
    return _stated(link.latency.value if link.latency else None, cluster, link)


def _stated(figure: float | None, cluster: Cluster, link: LinkSpec) -> float:
    if figure is None:
        raise InputError(
            f"{cluster.name}: the links {' - '.join(link.parts)} have no figures yet; "
            "run `scaling calibrate`"
        )
    return figure


# Out of a node


def _oversubscription(cluster: Cluster, fabric: Fabric, nodes: int) -> float:
    """Bandwidth of the NICs of a unit of `nodes` nodes over the bandwidth out of the unit.

    A unit may be several levels in one: an NVLink domain may fill a group of leaves.
    """
    sizes, factor = level_nodes(cluster), 1.0
    leaf, spine = fabric.leaf_oversubscription, fabric.spine_oversubscription
    if leaf is not None and nodes >= whole_domains(cluster, int(fabric.leaf_nodes.value)):
        factor *= leaf.value
    if spine is not None and "core" in sizes and nodes >= sizes.get("spine", nodes):
        factor *= spine.value
    return factor


def node_bandwidth(cluster: Cluster, fabric: Fabric, links: LinkSpec, nodes: int) -> float:
    """bytes/s out of each node of a unit of `nodes` nodes that all send at once."""
    nics = cluster.nics * nic_bandwidth(cluster, links)
    chips = cluster.devices_per_node * outward_bandwidth(cluster)
    upwards, over = cluster.node_network_bandwidth, _oversubscription(cluster, fabric, nodes)
    return min(nics, chips, upwards / over) if over else min(nics, chips)


def switch_latency(cluster: Cluster, fabric: Fabric, nodes: int) -> float:
    """Latency in s through the switches above the leaves that join `nodes` nodes, up and down."""
    sizes = level_nodes(cluster)
    spines = nodes > whole_domains(cluster, int(fabric.leaf_nodes.value))
    core = "core" in sizes and nodes > sizes.get("spine", nodes)
    return (spines + core) * 2 * (fabric.hop_latency.value if fabric.hop_latency else 0.0)


def nic_bandwidth(cluster: Cluster, network: LinkSpec) -> float:
    """bytes/s of one NIC: of its ports, or of its links into the node if those are less."""
    inwards = [j for j in cluster.links if "nic" in j.parts and j.kind != "network"]
    ports = bandwidth_of(cluster, network)
    if not inwards or cluster.virtual_devices:
        return ports
    links = (_wires_per_nic(cluster, j) * bandwidth_of(cluster, j) for j in inwards)
    return min(ports, sum(links))


def outward_bandwidth(cluster: Cluster) -> float:
    """bytes/s out of one chip by all links that do not lead to other chips."""
    if cluster.virtual_devices:
        return float("inf")
    links = [j for j in cluster.links if "chip" in j.parts and j.kind not in BETWEEN_CHIPS]
    return sum(bandwidth_of(cluster, j) for j in links) or float("inf")


def _wires_per_nic(cluster: Cluster, links: LinkSpec) -> float:
    """Wires into a node that each of its NICs has; of those to chips the used ones, in the mean."""
    first, second = (cluster.parts[part] for part in links.parts)
    counts = {"pairs": len(links.pairs), "all": first * second, "block": max(first, second)}
    if "chip" in links.parts:
        return (
            counts[links.wiring] * cluster.devices_per_node / cluster.parts["chip"] / cluster.nics
        )
    return counts[links.wiring] / cluster.parts["nic"]
