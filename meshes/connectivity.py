"""Checks that links join all parts of a host, from the wiring of its link specs.

chip3 -- pcie_switch3 -- nic3        every part in use reaches the first chip
"""

from collections.abc import Iterator

from scaling.meshes.cluster import Cluster, LinkSpec

Part = tuple[str, int]  # kind and number in its host


def unreached_parts(cluster: Cluster) -> list[str]:
    """Names of the parts of the first host that no links join to its first chip, sorted."""
    neighbours: dict[Part, set[Part]] = {part: set() for part in used_parts(cluster)}
    for spec in cluster.links:
        first, second = spec.parts
        for i, j in wired_pairs(spec, cluster.parts.get(first, 0), cluster.parts.get(second, 0)):
            if (first, i) in neighbours and (second, j) in neighbours:
                neighbours[first, i].add((second, j))
                neighbours[second, j].add((first, i))
    seen: set[Part] = set()
    frontier = {("chip", 0)}
    if cluster.torus is not None:  # whose links join all chips
        frontier = {part for part in neighbours if part[0] == "chip"}
    while frontier:
        seen |= frontier
        frontier = {part for each in frontier for part in neighbours[each]} - seen
    return sorted(f"node0/{kind}{number}" for kind, number in neighbours.keys() - seen)


def used_parts(cluster: Cluster) -> Iterator[Part]:
    """The parts of a host that a run uses: its first devices, their NICs, and all others."""
    limits = {"chip": cluster.devices_per_node, "nic": cluster.nics}
    for kind, count in cluster.parts.items():
        yield from ((kind, number) for number in range(min(count, limits.get(kind, count))))


def wired_pairs(spec: LinkSpec, n: int, m: int) -> Iterator[tuple[int, int]]:
    """Number pairs that `spec` joins among `n` parts of its first kind and `m` of its second."""
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
