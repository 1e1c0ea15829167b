"""The uplinks of a cluster, level by level, from its parts and its fabric.

    NVLink        of a chip, to the others of its node (or NVLink domain)
    ICI           of a TPU, from chip to chip in its slice
    PCIe          of a chip, and of the PCIe switch above it, where there is neither
    NICs          of a node (or NVLink domain), all together
    leaf, spine   all links upwards of a group of leaf switches, of a layer of spines
    NIC           of a chip: what one chip alone can send out of its node; where chips share NICs,
                  that of a few chips: what goes straight from chip to chip leaves by the nearest

Without peer access every byte is written to host memory and read from there: it loads the links of
the switch even between two chips below it, upwards and downwards once each.
"""

from functools import lru_cache

import numpy as np

from meshes.cluster import (
    Cluster,
    Joint,
    Level,
    level_nodes,
    network_joint,
    torus_joint,
    whole_domains,
)
from meshes.errors import InputError
from meshes.rings import direct_links, ring_count
from meshes.torus import Torus
from scaling.cost.crossings import Places, chip_sets, in_order
from scaling.cost.tori import grid_of
from scaling.cost.traffic import Uplink

NAMES = {"nvlink": "NVLink", "xgmi": "xGMI"}  # links from chip to chip, or to a switch of chips
FAST = tuple(NAMES)


@lru_cache(maxsize=64)
def uplinks(cluster: Cluster, rings: bool = False) -> tuple[Uplink, ...]:
    """All uplinks, inside out.

    Args:
        cluster: where.
        rings: inside a node over links between pairs of chips, which hold rings of the groups.

    Raises:
        InputError: the cluster's links have no figures (`host`), or connect only some of the chips.
    """
    devices = np.arange(cluster.devices)
    island = devices // (cluster.devices_per_node * cluster.domain_nodes)
    nvlink = _nvlink(cluster)
    if cluster.torus is not None:
        inside = [_ici(cluster, cluster.torus, island)]
    elif nvlink is not None:
        inside = [_fast(cluster, nvlink, island)]
    else:
        inside = [_paired(cluster, island)] if rings else _pcie(cluster, devices)
    return (*inside, *_network(cluster, devices))


def have_rings(cluster: Cluster, groups: np.ndarray) -> bool:
    """Whether links between pairs of chips hold a ring of every group's members in each node."""
    if _nvlink(cluster) is not None or not _paired_joints(cluster):
        return False
    links, n = direct_links(cluster, FAST), cluster.devices_per_node
    flat, members = in_order(groups).ravel(), groups.shape[1]
    begins = np.append(True, flat[1:] // n != flat[:-1] // n)
    begins[::members] = True
    sets, _ = chip_sets(flat % n, np.flatnonzero(begins))
    found = [ring_count(links, chips) for chips in sets if len(chips) > 1]
    return bool(found) and all(found)


def _paired(cluster: Cluster, island: np.ndarray) -> Uplink:
    """One ring over links between pairs of chips."""
    joint, devices = _paired_joints(cluster)[0], np.arange(cluster.devices)
    used = cluster.devices_per_node
    assert joint.bandwidth is not None
    places = Places(devices, devices, island, island)
    return Uplink(
        f"{NAMES[joint.kind]} of a chip",
        joint.kind,  # type: ignore[arg-type]
        joint.bandwidth.value,
        _latency(cluster, joint),
        places,
        innermost=True,
        paired=tuple(row[:used] for row in direct_links(cluster, FAST)[:used]),
    )


def _paired_joints(cluster: Cluster) -> list[Joint]:
    return [j for j in cluster.joints if j.kind in FAST and j.wiring == "pairs" and j.bandwidth]


def _ici(cluster: Cluster, torus: Torus, island: np.ndarray) -> Uplink:
    """One link from a chip to the next; a group counts those of its dimensions."""
    joint, devices = torus_joint(torus), np.arange(cluster.devices)
    places = Places(devices, devices, island, island)
    bandwidth, hop = _bandwidth(cluster, joint), _latency(cluster, joint)
    return Uplink("ICI link of a chip", "ici", bandwidth, hop, places, grid=grid_of(cluster))


def _nvlink(cluster: Cluster) -> Joint | None:
    """The joint by which every chip reaches every other: bridges between pairs do not."""
    joints = [j for j in cluster.joints if j.kind in FAST]
    return next((j for j in joints if j.parts[1] == "nvswitch" or j.wiring == "all"), None)


def _fast(cluster: Cluster, joint: Joint, island: np.ndarray) -> Uplink:
    """A chip's links to a switch, or to each of the others: then a group uses those among it."""
    devices = np.arange(cluster.devices)
    peers = 0 if joint.parts[1] == "nvswitch" else cluster.devices_per_node - 1
    return Uplink(
        f"{NAMES[joint.kind]} of a chip",
        joint.kind,  # type: ignore[arg-type]
        max(1, peers) * _bandwidth(cluster, joint),
        (1 if peers else 2) * _latency(cluster, joint),
        Places(devices, devices, island, island),
        innermost=True,
        peers=peers,
    )


def _pcie(cluster: Cluster, devices: np.ndarray) -> list[Uplink]:
    """The link of each chip, and that of the switch above it, unless its NICs are below it too."""
    joint = _joint(cluster, "chip", "pcie")
    everywhere, node = np.zeros_like(devices), devices // cluster.devices_per_node
    staged = not cluster.peer_access
    step = 2 * path_latency(cluster, "chip", "socket")
    own = Places(devices, devices, everywhere, node)
    chip = Uplink("PCIe of a chip", "pcie", _bandwidth(cluster, joint), step, own, staged)
    if joint.parts[1] != "pcie_switch":
        return [chip, *_sockets(cluster, devices)]
    upwards = _joint(cluster, "pcie_switch", "pcie", "socket")
    switches = cluster.parts["pcie_switch"]
    below = devices % cluster.devices_per_node * switches // cluster.parts["chip"]
    switch = node * switches + below
    unit = switch if cluster.peer_access else devices
    beside = cluster.peer_access and any(j.parts == ("nic", "pcie_switch") for j in cluster.joints)
    shared = Places(unit, switch, node if beside else everywhere, node)
    bandwidth = _bandwidth(cluster, upwards)
    switch_link = Uplink("PCIe of a switch", "pcie", bandwidth, 0.0, shared, staged)
    return [chip, switch_link, *_sockets(cluster, devices)]


def _sockets(cluster: Cluster, devices: np.ndarray) -> list[Uplink]:
    """What joins the sockets of a node, for traffic between their chips; one hop with PCIe's."""
    sockets = cluster.parts.get("socket", 1)
    joint = next((j for j in cluster.joints if j.parts == ("socket", "socket")), None)
    if sockets == 1 or joint is None:
        return []
    node, chip = np.divmod(devices, cluster.devices_per_node)
    socket = node * sockets + chip * sockets // cluster.parts["chip"]
    bandwidth = (sockets - 1) * _bandwidth(cluster, joint)
    places = Places(socket, socket, node, node)
    return [Uplink("links between sockets", "pcie", bandwidth, 0.0, places)]


def _network(cluster: Cluster, devices: np.ndarray) -> list[Uplink]:
    """NICs, leaves and spines: an uplink for every level below the highest."""
    nodes = _levels(cluster)
    joint, fabric = network_joint(cluster), cluster.fabric
    if len(nodes) == 1 or joint is None or fabric is None:
        return []
    everywhere = np.zeros_like(devices)
    units = [devices // (cluster.devices_per_node * size) for size in nodes.values()]
    nic, chip = _nic(cluster, joint), _host_link(cluster)
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
    return [*found, Uplink("NIC of a chip", "network", own, 0.0, one_chip)]


def _shared_nic(cluster: Cluster, unit: np.ndarray, bandwidth: float) -> Uplink:
    """The NIC nearest to a few chips: no other carries what they send by themselves.

    Rings and trees take every NIC in turn, through whatever joins the chips.
    """
    node, chip = np.divmod(np.arange(len(unit)), cluster.devices_per_node)
    nic = node * cluster.nics + chip * cluster.nics // cluster.devices_per_node
    places = Places(unit, nic, np.zeros_like(unit), unit)
    return Uplink("NIC of a few chips", "network", bandwidth, 0.0, places, straight=True)


WORDS: dict[Level, str] = {
    "node": "NICs of a node",
    "domain": "NICs of an NVLink domain",
    "leaf": "uplinks of a leaf group",
    "spine": "uplinks of a spine layer",
}
SLICE = "NICs of a slice"


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


def _nic(cluster: Cluster, network: Joint) -> float:
    """bytes/s of one NIC: of its ports, or of its links into the node where those are less."""
    inwards = [j for j in cluster.joints if "nic" in j.parts and j.kind != "network"]
    if not inwards:
        return _bandwidth(cluster, network)
    found = sum(_wires(cluster, j) / cluster.parts["nic"] * _bandwidth(cluster, j) for j in inwards)
    return min(_bandwidth(cluster, network), found)


def _host_link(cluster: Cluster) -> float:
    """bytes/s out of one chip by all links that do not lead to other chips."""
    fabric = (*FAST, "ici")
    joints = [j for j in cluster.joints if "chip" in j.parts and j.kind not in fabric]
    return sum(_bandwidth(cluster, j) for j in joints) or float("inf")


def _wires(cluster: Cluster, joint: Joint) -> int:
    """How often a joint is there in one host."""
    first, second = (cluster.parts[part] for part in joint.parts)
    counts = {"pairs": len(joint.pairs), "all": first * second, "block": max(first, second)}
    return counts[joint.wiring]


def path_latency(cluster: Cluster, start: str, goal: str) -> float:
    """Seconds from one kind of part to another over the fewest links, NVLink left out."""
    reached = {start: 0.0}
    frontier = [start]
    while frontier and goal not in reached:
        steps = [(p, j) for p in frontier for j in cluster.joints if p in j.parts]
        frontier = []
        for part, joint in steps:
            other = joint.parts[1] if joint.parts[0] == part else joint.parts[0]
            if other not in reached and joint.kind != "nvlink":
                reached[other] = reached[part] + _latency(cluster, joint)
                frontier.append(other)
    if goal not in reached:
        raise InputError(f"{cluster.name}: no link leads from a {start} to a {goal}")
    return reached[goal]


def _joint(cluster: Cluster, part: str, kind: str, other: str | None = None) -> Joint:
    """The joint of that kind that starts from `part`."""
    for joint in cluster.joints:
        if joint.kind == kind and joint.parts[0] == part and other in (None, joint.parts[1]):
            return joint
    raise InputError(
        f"{cluster.name}: no {kind} link from a {part} that could join all chips of a node; "
        "`host` has none before `scaling calibrate`"
    )


def _bandwidth(cluster: Cluster, joint: Joint) -> float:
    if joint.total_bandwidth is None:
        raise InputError(_unmeasured(cluster, joint))
    return joint.total_bandwidth


def _latency(cluster: Cluster, joint: Joint) -> float:
    if joint.latency is None:
        raise InputError(_unmeasured(cluster, joint))
    return joint.latency.value


def _unmeasured(cluster: Cluster, joint: Joint) -> str:
    ends = " - ".join(joint.parts)
    return f"{cluster.name}: the links {ends} have no figures yet; run `scaling calibrate`"
