"""The uplinks of a cluster, level by level, from its parts and its fabric.

    NVLink        of a chip, to the others of its node (or NVLink domain)
    ICI           of a TPU, from chip to chip in its slice
    PCIe          of a chip, and of the PCIe switch above it, where there is neither
    NICs ..       between nodes (`scaling.collectives.network`)

Without peer access every byte is written to host memory and read from there: it loads the links of
the switch even between two chips below it, upwards and downwards once each.
"""

from functools import lru_cache

import numpy as np

from scaling.collectives.contention import Places, chip_sets, in_order
from scaling.collectives.network import network_uplinks
from scaling.collectives.torus import grid_of
from scaling.collectives.traffic import Uplink
from scaling.collectives.wiring import bandwidth_of, latency_of, link_of, path_latency
from scaling.meshes.cluster import Cluster, LinkSpec, torus_link
from scaling.meshes.rings import FAST, direct_links, ring_count
from scaling.meshes.torus import Torus

NAMES = {"nvlink": "NVLink", "xgmi": "xGMI"}  # links from chip to chip, or to a switch of chips


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
    return (*inside, *network_uplinks(cluster, devices))


def have_rings(cluster: Cluster, groups: np.ndarray) -> bool:
    """Whether links between pairs of chips hold a ring of every group's members in each node."""
    if _nvlink(cluster) is not None or not _paired_links(cluster):
        return False
    links, n = direct_links(cluster, FAST), cluster.devices_per_node
    flat, members = in_order(groups).ravel(), groups.shape[1]
    begins = np.append(True, flat[1:] // n != flat[:-1] // n)
    begins[::members] = True
    sets, _ = chip_sets(flat % n, np.flatnonzero(begins))
    found = [ring_count(links, chips) for chips in sets if len(chips) > 1]
    return bool(found) and all(found)


def _paired(cluster: Cluster, island: np.ndarray) -> Uplink:
    """One ring over links between pairs of chips; as fast as the slowest kind of them."""
    links, devices = _paired_links(cluster), np.arange(cluster.devices)
    link = min(links, key=lambda j: j.bandwidth.value)  # type: ignore[union-attr]
    used = cluster.devices_per_node
    assert link.bandwidth is not None
    places = Places(devices, devices, island, island)
    return Uplink(
        f"{NAMES[link.kind]} of a chip",
        link.kind,  # type: ignore[arg-type]
        link.bandwidth.value,
        max(latency_of(cluster, j) for j in links),
        places,
        innermost=True,
        paired=tuple(row[:used] for row in direct_links(cluster, FAST)[:used]),
    )


def _paired_links(cluster: Cluster) -> list[LinkSpec]:
    return [j for j in cluster.links if j.kind in FAST and j.wiring == "pairs" and j.bandwidth]


def _ici(cluster: Cluster, torus: Torus, island: np.ndarray) -> Uplink:
    """One link from a chip to the next; a group counts those of its dimensions."""
    link, devices = torus_link(torus), np.arange(cluster.devices)
    places = Places(devices, devices, island, island)
    bandwidth, hop = bandwidth_of(cluster, link), latency_of(cluster, link)
    return Uplink("ICI link of a chip", "ici", bandwidth, hop, places, grid=grid_of(cluster))


def _nvlink(cluster: Cluster) -> LinkSpec | None:
    """The link by which every chip reaches every other: bridges between pairs do not."""
    links = [j for j in cluster.links if j.kind in FAST]
    return next((j for j in links if j.parts[1] == "nvswitch" or j.wiring == "all"), None)


def _fast(cluster: Cluster, link: LinkSpec, island: np.ndarray) -> Uplink:
    """A chip's links to a switch, or to each of the others: then a group uses those among it."""
    devices = np.arange(cluster.devices)
    peers = 0 if link.parts[1] == "nvswitch" else cluster.devices_per_node - 1
    return Uplink(
        f"{NAMES[link.kind]} of a chip",
        link.kind,  # type: ignore[arg-type]
        max(1, peers) * bandwidth_of(cluster, link),
        (1 if peers else 2) * latency_of(cluster, link),
        Places(devices, devices, island, island),
        innermost=True,
        peers=peers,
    )


def _pcie(cluster: Cluster, devices: np.ndarray) -> list[Uplink]:
    """The link of each chip, and that of the switch above it, unless its NICs are below it too."""
    link = link_of(cluster, "chip", "pcie")
    everywhere, node = np.zeros_like(devices), devices // cluster.devices_per_node
    staged = not cluster.peer_access
    step = 2 * path_latency(cluster, "chip", "socket")
    own = Places(devices, devices, everywhere, node)
    chip = Uplink("PCIe of a chip", "pcie", bandwidth_of(cluster, link), step, own, staged)
    if link.parts[1] != "pcie_switch":
        return [chip, *_sockets(cluster, devices)]
    upwards = link_of(cluster, "pcie_switch", "pcie", "socket")
    switches = cluster.parts["pcie_switch"]
    below = devices % cluster.devices_per_node * switches // cluster.parts["chip"]
    switch = node * switches + below
    unit = switch if cluster.peer_access else devices
    beside = cluster.peer_access and any(j.parts == ("nic", "pcie_switch") for j in cluster.links)
    shared = Places(unit, switch, node if beside else everywhere, node)
    bandwidth = bandwidth_of(cluster, upwards)
    switch_link = Uplink("PCIe of a switch", "pcie", bandwidth, 0.0, shared, staged)
    return [chip, switch_link, *_sockets(cluster, devices)]


def _sockets(cluster: Cluster, devices: np.ndarray) -> list[Uplink]:
    """What joins the sockets of a node, for traffic between their chips; one hop with PCIe's."""
    sockets = cluster.parts.get("socket", 1)
    link = next((j for j in cluster.links if j.parts == ("socket", "socket")), None)
    if sockets == 1 or link is None:
        return []
    node, chip = np.divmod(devices, cluster.devices_per_node)
    socket = node * sockets + chip * sockets // cluster.parts["chip"]
    bandwidth = (sockets - 1) * bandwidth_of(cluster, link)
    places = Places(socket, socket, node, node)
    return [Uplink("links between sockets", "pcie", bandwidth, 0.0, places)]
