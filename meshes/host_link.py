"""The way between a chip and its host's memory, which all chips of the host use at once.

    chip - PCIe switch - socket - memory          or whatever the cluster's wires are

Each wire is shared by the chips whose way goes over it; the slowest share decides. Both directions
have the whole of it: a step copies one way in its forward, the other in its backward pass.
"""

from collections import Counter

from scaling.meshes.cluster import Cluster, Part, host_wires

INNER = ("pcie_switch", "socket", "memory")  # parts on the way
# Share of the rated bandwidth that copies to and from pinned memory reach: an A100 25.13 of 31.5
# GB/s (host to device), an H100 52.77 of 63 (device to host), a GH200 346 of 450 over NVLink-C2C:
# NVIDIA/nvbandwidth, issues 42, 24 and 23.
COPY_SHARE = 25.13 / 31.5

Wire = tuple[Part, Part]


def host_bandwidth(cluster: Cluster) -> float | None:
    """bytes/s, one direction, that every chip of a host copies at while all others do.

    None where the memory is the devices' own, or no way of known bandwidth leads there.
    """
    rated = rated_host_bandwidth(cluster)
    return None if rated is None else COPY_SHARE * rated


def rated_host_bandwidth(cluster: Cluster, end: str = "memory") -> float | None:
    """bytes/s, one direction, of a chip's share of the wires to its host's memory, or to `end`.

    None as of `host_bandwidth`.
    """
    if cluster.virtual_devices:
        return None
    wires = {
        (lower, upper): links.total_bandwidth
        for lower, upper, links in host_wires(cluster)
        if upper[0] in INNER and lower[0] != upper[0]
    }
    ways = [_way(wires, ("chip", chip), end) for chip in range(cluster.devices_per_node)]
    if not all(ways):
        return None
    users = Counter(wire for way in ways for wire in way)
    shares = [rate / count for wire, count in users.items() if (rate := wires[wire]) is not None]
    return min(shares) if len(shares) == len(users) else None


def _way(wires: dict[Wire, float | None], start: Part, end: str) -> list[Wire]:
    """The wires of the shortest way from a part to one called `end`; none: there is no way."""
    ways: dict[Part, list[Wire]] = {start: []}
    frontier = [start]
    while frontier:
        reached = []
        for wire in wires:
            if wire[0] in frontier and wire[1] not in ways:
                ways[wire[1]] = [*ways[wire[0]], wire]
                reached.append(wire[1])
        for part in reached:
            if part[0] == end:
                return ways[part]
        frontier = reached
    return []
