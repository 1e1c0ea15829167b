"""Switches of every layer of a cluster, by the ports that they have.

    leaf   one for each rail of a group, or more where its ports down do not suffice
    spine  cables from below / ports; with a core layer only a part of the ports is down
    core   cables from below / ports

With an oversubscription of r, ports p: p r/(1 + r) are down and p/(1 + r) up. A full fat tree of
1,024 H100 has 1,024 cables, so 1,024/32 leaves and 1,024/64 spines.
"""

import math

from scaling.meshes.cluster import Cluster, level_nodes
from scaling.meshes.provenance import SourcedValue


def switch_counts(cluster: Cluster) -> dict[str, int]:
    """Return layer -> switches, of those layers whose switches the cluster file describes."""
    counts = {}
    if cluster.nvswitch_chips is not None:
        domains = math.ceil(cluster.nodes / cluster.domain_nodes)
        counts["nvswitch"] = domains * int(cluster.nvswitch_chips.value)
    fabric = cluster.fabric
    if fabric is None or fabric.switch_ports is None or cluster.nodes == 1:
        return counts
    units, ports = level_nodes(cluster), int(fabric.switch_ports.value)
    down, up = _split(ports, fabric.leaf_oversubscription)
    below = min(cluster.nodes, int(fabric.leaf_nodes.value))
    groups = math.ceil(cluster.nodes / below)
    rails = cluster.nics if fabric.rails else 1
    counts["leaf"] = groups * rails * math.ceil(below * cluster.nics / rails / down)
    if groups == 1:
        return counts
    cables = math.ceil(cluster.nodes * cluster.nics * up / down)
    if "core" in units:
        down, up = _split(ports, fabric.spine_oversubscription)
        counts["spine"] = math.ceil(cables / down)
        cables = math.ceil(cables * up / down)
    counts["core" if "core" in units else "spine"] = math.ceil(cables / ports)
    return counts


def _split(ports: int, oversubscription: SourcedValue | None) -> tuple[int, int]:
    """Ports down and up of a switch between two layers."""
    ratio = oversubscription.value if oversubscription else 1.0
    up = min(max(1, int(ports / (1 + ratio))), ports - 1)
    return ports - up, up
