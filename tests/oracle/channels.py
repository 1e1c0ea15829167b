"""Rings through the members of a group, one per channel.

    ring over domains   enter at 0 .. leave at 4 | enter at 4 .. leave at 0 | enter at 0 ..
                        a channel enters every domain on the rail on which it left the one before

An *NVLink domain* is the chips that reach each other over NVLink: of one node or of several. A node
without NVLink counts as a domain as well.
"""

from collections.abc import Sequence

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.rings import FAST, direct_links, rings

Devices = tuple[int, ...]


def nvlink_domains(cluster: Cluster, group: Sequence[int]) -> list[list[int]]:
    """Members of a group by NVLink domain, both in ascending order."""
    size = cluster.devices_per_node * cluster.domain_nodes
    domains: dict[int, list[int]] = {}
    for device in sorted(int(d) for d in group):
        domains.setdefault(device // size, []).append(device)
    return list(domains.values())


def domain_grid(cluster: Cluster, group: Sequence[int]) -> np.ndarray:
    """Device numbers [domains, members of each], for groups with as many members in each."""
    domains = nvlink_domains(cluster, group)
    assert len({len(members) for members in domains}) == 1, "domains with as many members each"
    return np.array(domains)


def has_nvlink(cluster: Cluster) -> bool:
    """True if every chip of a domain reaches every other without PCIe."""
    return is_mesh(cluster) or any(
        link.kind in FAST and link.parts[1] == "nvswitch" for link in cluster.links
    )


def is_mesh(cluster: Cluster) -> bool:
    """True if every chip of a node has a link to each of the others."""
    return any(link.parts == ("chip", "chip") and link.wiring == "all" for link in cluster.links)


def channel_orders(cluster: Cluster, group: Sequence[int]) -> list[list[int]]:
    """Rings through a group, one per channel: as many as use every link.

    One ring serves one domain behind a switch or PCIe. Over several domains every member has its
    turn to leave, behind PCIe one member for each NIC; every second domain is walked backwards,
    which keeps the rail. Links between pairs of chips hold the rings of `scaling.meshes.rings`.

    Raises:
        ValueError: chips with a link to each of the others, whose rings are not replayed.
    """
    domains = nvlink_domains(cluster, group)
    if is_mesh(cluster):
        raise ValueError(f"{cluster.name}: rings over links between all chips are not replayed")
    walks = pair_rings(cluster, domains)
    if len(domains) == 1:
        return [_members(walk) for walk in walks[0]] if walks else [domains[0]]
    if walks:
        return [
            [
                device
                for i, rings_ in enumerate(walks)
                for device in _alternating(_turned(_members(rings_[ring % len(rings_)]), head), i)
            ]
            for ring in range(len(walks[0]))
            for head in range(len(domains[0]))
        ]
    turn = _zigzag if has_nvlink(cluster) else _turned
    heads = range(len(domains[0])) if has_nvlink(cluster) else nic_heads(cluster, domains[0])
    return [
        [device for i, part in enumerate(domains) for device in _alternating(turn(part, head), i)]
        for head in heads
    ]


def pair_rings(cluster: Cluster, domains: Sequence[Sequence[int]]) -> list[list[Devices]]:
    """Rings over links between pairs of chips, of each domain; [] where one domain holds none."""
    links, n = direct_links(cluster, FAST), cluster.devices_per_node
    if not any(map(any, links)):
        return []
    walks = []
    for part in domains:
        first = part[0] // n * n
        chips = tuple(device - first for device in part)
        own = rings(links, chips) if len(chips) > 1 else (chips,)
        walks.append([tuple(first + chip for chip in walk) for walk in own])
    return walks if all(walks) and any(len(part) > 1 for part in domains) else []


def forwarding_chips(
    cluster: Cluster, group: Sequence[int]
) -> dict[tuple[int | str, int | str], int]:
    """(member, next member of a ring) -> the device that a ring only passes between the two."""
    forwarding: dict[tuple[int | str, int | str], int] = {}
    for walks in pair_rings(cluster, nvlink_domains(cluster, group)):
        for walk in walks:
            for k, device in enumerate(walk):
                if device in walk[:k]:
                    forwarding[walk[k - 1], walk[(k + 1) % len(walk)]] = device
    return forwarding


def nic_heads(cluster: Cluster, members: Sequence[int]) -> list[int]:
    """Positions in one domain of the first member of each NIC."""
    chips = [device % cluster.devices_per_node for device in members]
    nics = [chip * max(1, cluster.nics) // cluster.devices_per_node for chip in chips]
    return [i for i, nic in enumerate(nics) if nic not in nics[:i]]


def _members(walk: Devices) -> list[int]:
    """Devices in the order of a ring, without a second visit."""
    return list(dict.fromkeys(walk))


def _alternating(order: list[int], domain: int) -> list[int]:
    return order[::-1] if domain % 2 else order


def _turned(members: Sequence[int], head: int) -> list[int]:
    """From one member around to the one before it: chips of one switch stay together."""
    return [*members[head:], *members[:head]]


def _zigzag(members: Sequence[int], head: int) -> list[int]:
    """0 1 7 2 6 3 5 4 for head 0 of 8, 1 2 0 3 .. for head 1: each link once, if 8 is even.

    Williams, "Experimental designs balanced for the estimation of residual effects", 1949.
    """
    n = len(members)
    steps = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(n)]
    return [members[(head + step) % n] for step in steps]
