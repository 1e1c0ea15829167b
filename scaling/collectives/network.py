"""The uplinks between nodes: NICs, leaves and spines.

NICs          of a node (or NVLink domain), all together
leaf, spine   all links upwards of a group of leaf switches, of a layer of spines
NIC           of a chip: what one chip alone can send out of its node; where chips share NICs,
              that of a few chips: what goes straight from chip to chip leaves by the nearest
"""

from dataclasses import replace

import numpy as np

from scaling.collectives.traffic import Places, Uplink
from scaling.collectives.wiring import bandwidth_of, path_latency
from scaling.meshes.cluster import (
    Cluster,
    Level,
    LinkSpec,
    level_nodes,
    network_link,
    whole_domains,
)

BETWEEN_CHIPS = ("nvlink", "xgmi", "ici")  # links that do not lead out of a node

WORDS: dict[Level, str] = {
    "node": "NICs of a node",
    "domain": "NICs of an NVLink domain",
    "leaf": "uplinks of a leaf group",
    "spine": "uplinks of a spine layer",
}
SLICE = "NICs of a slice"


def network_uplinks(cluster: Cluster, devices: np.ndarray) -> list[Uplink]:
    """NICs, leaves and spines: an uplink for every level below the highest."""
    nodes = _levels(cluster)
    link, fabric = network_link(cluster), cluster.fabric
    if len(nodes) == 1 or link is None or fabric is None:
        return []
    everywhere = np.zeros_like(devices)
    units = [devices // (cluster.devices_per_node * size) for size in nodes.values()]
    nic, chip = _nic(cluster, link), _host_link(cluster)
    own = min(max(1.0, cluster.nics / cluster.devices_per_node) * nic, chip)
    node = min(cluster.nics * nic, cluster.devices_per_node * chip)
    one_chip = Places(units[0], devices, everywhere, units[0])
    found = []
    hop = 2 * path_latency(cluster, "chip", "leaf")
    extra = 2 * (fabric.hop_latency.value if fabric.hop_latency else 0.0)
    for i, (level, size) in enumerate(list(nodes.items())[:-1]):
        upwards = cluster.node_network_bandwidth / _oversubscription(cluster, size)
        bandwidth = size * min(node, upwards)
        places = Places(units[i], units[i], everywhere, units[i + 1])
        words = SLICE if level == "domain" and cluster.torus is not None else WORDS[level]
        layers = _switch_layers(cluster, list(nodes.values())[i + 1])
        found.append(Uplink(words, "network", bandwidth, hop + layers * extra, places))
    if cluster.nics < cluster.devices_per_node:
        found.append(_shared_nic(cluster, units[0], nic))
    found.append(Uplink("NIC of a chip", "network", own, 0.0, one_chip))
    return [replace(uplink, transport=fabric.transport) for uplink in found]


def _shared_nic(cluster: Cluster, unit: np.ndarray, bandwidth: float) -> Uplink:
    """The NIC nearest to a few chips: no other carries what they send by themselves.

    Rings and trees take every NIC in turn, through whatever joins the chips.
    """
    node, chip = np.divmod(np.arange(len(unit)), cluster.devices_per_node)
    nic = node * cluster.nics + chip * cluster.nics // cluster.devices_per_node
    places = Places(unit, nic, np.zeros_like(unit), unit)
    return Uplink("NIC of a few chips", "network", bandwidth, 0.0, places, straight=True)


def _levels(cluster: Cluster) -> dict[Level, int]:
    """Nodes in one unit of each level, from the NVLink domain (or node) on."""
    nodes = level_nodes(cluster)
    if "domain" in nodes:
        del nodes["node"]
    return nodes


def _oversubscription(cluster: Cluster, nodes: int) -> float:
    """What the NICs of a unit of so many nodes can send, over what leads out of the unit.

    A unit may be several levels in one: an NVLink domain may fill a group of leaves.
    """
    assert cluster.fabric is not None
    sizes, fabric = level_nodes(cluster), cluster.fabric
    leaf = whole_domains(cluster, int(fabric.leaf_nodes.value))
    factor = 1.0
    if fabric.leaf_oversubscription is not None and nodes >= leaf:
        factor *= fabric.leaf_oversubscription.value
    if (
        fabric.spine_oversubscription is not None
        and "core" in sizes
        and nodes >= sizes.get("spine", nodes)
    ):
        factor *= fabric.spine_oversubscription.value
    return factor


def _switch_layers(cluster: Cluster, nodes: int) -> int:
    """Layers of switches above the leaves that join so many nodes: none, spines, a core too."""
    assert cluster.fabric is not None
    sizes = level_nodes(cluster)
    above_spines = "core" in sizes and nodes > sizes.get("spine", nodes)
    return int(nodes > whole_domains(cluster, int(cluster.fabric.leaf_nodes.value))) + above_spines


def _nic(cluster: Cluster, network: LinkSpec) -> float:
    """bytes/s of one NIC: of its ports, or of its links into the node where those are less."""
    inwards = [j for j in cluster.links if "nic" in j.parts and j.kind != "network"]
    if not inwards:
        return bandwidth_of(cluster, network)
    found = sum(
        _wires(cluster, j) / cluster.parts["nic"] * bandwidth_of(cluster, j) for j in inwards
    )
    return min(bandwidth_of(cluster, network), found)


def _host_link(cluster: Cluster) -> float:
    """bytes/s out of one chip by all links that do not lead to other chips."""
    links = [j for j in cluster.links if "chip" in j.parts and j.kind not in BETWEEN_CHIPS]
    return sum(bandwidth_of(cluster, j) for j in links) or float("inf")


def _wires(cluster: Cluster, link: LinkSpec) -> int:
    """How often a link is there in one host."""
    first, second = (cluster.parts[part] for part in link.parts)
    counts = {"pairs": len(link.pairs), "all": first * second, "block": max(first, second)}
    return counts[link.wiring]
