"""Rings through the members of a group, one per channel, behind NVSwitches or PCIe.

    ring over domains   enter at 0 .. leave at 4 | enter at 4 .. leave at 0 | enter at 0 ..
                        a channel enters every domain on the rail on which it left the one before

An *NVLink domain* is the chips of one NVSwitch; a node without NVLink counts as one as well.
"""

from collections.abc import Sequence

from scaling.meshes.cluster import Cluster


def nvlink_domains(cluster: Cluster, group: Sequence[int]) -> list[list[int]]:
    """Members of a group by NVLink domain, both in ascending order."""
    size = cluster.devices_per_node * cluster.domain_nodes
    domains: dict[int, list[int]] = {}
    for device in sorted(int(d) for d in group):
        domains.setdefault(device // size, []).append(device)
    return list(domains.values())


def channel_orders(cluster: Cluster, group: Sequence[int]) -> list[list[int]]:
    """Rings through a group, one per channel: as many as use every link.

    One ring serves one domain. Over several domains every member has its turn to leave, behind
    PCIe one member for each NIC; every second domain is walked backwards, which keeps the rail.
    """
    domains = nvlink_domains(cluster, group)
    if len(domains) == 1:
        return domains
    switched = "nvswitch" in cluster.parts
    turn = _zigzag if switched else turned
    heads = range(len(domains[0])) if switched else nic_heads(cluster, domains[0])
    return [
        [d for i, part in enumerate(domains) for d in turn(part, head)[:: -1 if i % 2 else 1]]
        for head in heads
    ]


def nic_heads(cluster: Cluster, members: Sequence[int]) -> list[int]:
    """Positions in one domain of the first member of each NIC."""
    chips = [device % cluster.devices_per_node for device in members]
    nics = [chip * max(1, cluster.nics) // cluster.devices_per_node for chip in chips]
    return [i for i, nic in enumerate(nics) if nic not in nics[:i]]


def turned(members: Sequence[int], head: int) -> list[int]:
    """From one member around to the one before it: chips of one switch stay together."""
    return [*members[head:], *members[:head]]


def _zigzag(members: Sequence[int], head: int) -> list[int]:
    """0 1 7 2 6 3 5 4 for head 0 of 8, 1 2 0 3 .. for head 1: each link once, if 8 is even.

    Williams, "Experimental designs balanced for the estimation of residual effects", 1949.
    """
    n = len(members)
    steps = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(n)]
    return [members[(head + step) % n] for step in steps]
