"""Switches of every layer of a cluster, by the ports that they have.

    nvswitch  as many as the cluster file says; each chip has as many links to all of them
    leaf      one for each rail of a group, or more where its ports down do not suffice
    spine     cables from below / ports; with a core layer only a part of the ports is down
    core      cables from below / ports

With an oversubscription of r, ports p: p r/(1 + r) are down and p/(1 + r) up. A full fat tree of
1,024 H100 has 1,024 cables, so 1,024/32 leaves and 1,024/64 spines.
"""

import math
from dataclasses import dataclass

from scaling.meshes.cluster import Cluster, level_nodes, network_link
from scaling.meshes.provenance import SourcedValue


@dataclass(frozen=True)
class SwitchLayer:
    """The switches of one layer, all alike. One with fewer cables than others counts as they do."""

    name: str  # nvswitch, leaf, spine or core
    count: int
    ports: int | None  # of one switch; None: the cluster file does not say
    down: int  # of them, with cables from below
    up: int  # of them, with cables to the layer above
    port_bandwidth: float | None  # bytes/s of one port, one direction; None: not known

    @property
    def bandwidth(self) -> float | None:
        """bytes/s that all of them can pass on, every port in use, one direction."""
        if self.ports is None or self.port_bandwidth is None:
            return None
        return self.count * self.ports * self.port_bandwidth


def switch_layers(cluster: Cluster) -> tuple[SwitchLayer, ...]:
    """Return the layers whose switches the cluster file describes, from the chips outwards."""
    return (*_nvswitches(cluster), *_fabric_layers(cluster))


def _nvswitches(cluster: Cluster) -> list[SwitchLayer]:
    if cluster.nvswitch_chips is None:
        return []
    chips = int(cluster.nvswitch_chips.value)
    nodes = min(cluster.nodes, cluster.domain_nodes)
    links = [link for link in cluster.links if link.parts == ("chip", "nvswitch")]
    cables = sum(nodes * cluster.parts["chip"] * link.count for link in links)
    ports, rate = cluster.nvswitch_ports, links[0].bandwidth if links else None
    count = math.ceil(cluster.nodes / cluster.domain_nodes) * chips
    return [
        SwitchLayer(
            "nvswitch",
            count,
            ports=None if ports is None else int(ports.value),
            down=math.ceil(cables / chips),
            up=0,
            port_bandwidth=None if rate is None else rate.value,
        )
    ]


def _fabric_layers(cluster: Cluster) -> list[SwitchLayer]:
    fabric, link = cluster.fabric, network_link(cluster)
    if fabric is None or fabric.switch_ports is None or cluster.nodes == 1:
        return []
    units, ports = level_nodes(cluster), int(fabric.switch_ports.value)
    rate = None if link is None or link.bandwidth is None else link.bandwidth.value
    layers: list[SwitchLayer] = []

    def add(name: str, count: int, cables: int, ratio: float = 0.0) -> int:
        """Append a layer of cables from below; return those up, so many for each."""
        down = math.ceil(cables / count)
        up = math.ceil(down * ratio)
        layers.append(SwitchLayer(name, count, ports, down, up, rate))
        return math.ceil(cables * ratio)

    down, up = _split(ports, fabric.leaf_oversubscription)
    below = min(cluster.nodes, int(fabric.leaf_nodes.value))
    groups = math.ceil(cluster.nodes / below)
    rails = cluster.nics if fabric.rails else 1
    leaves = groups * rails * math.ceil(below * cluster.nics / rails / down)
    cables = add("leaf", leaves, cluster.nodes * cluster.nics, up / down if groups > 1 else 0)
    if groups == 1:
        return layers
    if "core" in units:
        down, up = _split(ports, fabric.spine_oversubscription)
        cables = add("spine", math.ceil(cables / down), cables, up / down)
    add("core" if "core" in units else "spine", math.ceil(cables / ports), cables)
    return layers


def _split(ports: int, oversubscription: SourcedValue | None) -> tuple[int, int]:
    """Ports down and up of a switch between two layers."""
    ratio = oversubscription.value if oversubscription else 1.0
    up = min(max(1, int(ports / (1 + ratio))), ports - 1)
    return ports - up, up
