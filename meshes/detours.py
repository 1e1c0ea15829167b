"""Ways between chips of a node over its links between pairs, for what goes from one to another.

    0 = 1        0 to 1: their own links
    |   |        0 to 3: by way of 1 and by way of 2, half of the bytes each
    2 - 3

Of all ways the shortest, over chips of the group only: NCCL forwards by way of a GPU of the job
where two have no NVLink (PATH_NVB in NVIDIA/nccl 2.30.7, src/graph/paths.cc). It takes one of the
ways for each pair; evenly over all is this project's reading of many pairs at once.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations, pairwise, permutations

import numpy as np

from scaling.meshes.rings import Links

Ways = tuple[tuple[int, ...], ...]  # chips from the first to the last


@lru_cache(maxsize=4096)
def shortest_ways(links: Links, members: tuple[int, ...], source: int, target: int) -> Ways:
    """All shortest ways from `source` to `target` over `members`; none: ()."""
    found: list[tuple[int, ...]] = [(source,)]
    reached = {source}
    while found and target not in reached:
        found = [
            (*way, chip)
            for way in found
            for chip in members
            if chip not in reached and links[way[-1]][chip]
        ]
        reached |= {way[-1] for way in found}
    return tuple(way for way in found if way[-1] == target)


def busiest_link(links: Links, members: tuple[int, ...], pairs: Iterable[tuple[int, int]]) -> float:
    """Bytes over the busiest link when each of `pairs` sends one byte over all its ways alike."""
    carried = np.zeros((len(links), len(links)))
    for source, target in pairs:
        ways = shortest_ways(links, members, source, target)
        for way in ways:
            for hop in pairwise(way):
                carried[hop] += 1 / len(ways) / links[hop[0]][hop[1]]
    return float(carried.max())


@lru_cache(maxsize=4096)
def straight_links(links: Links, members: tuple[int, ...]) -> float:
    """Links that a member has for sending to each of the others; 0: it cannot.

    One of a chip's links per byte that it sends, were there a link from each to each: fewer where
    others' bytes come by.
    """
    pairs = list(permutations(members, 2))
    if not all(shortest_ways(links, members, *pair) for pair in pairs):
        return 0.0
    return (len(members) - 1) / busiest_link(links, members, pairs)


@lru_cache(maxsize=4096)
def narrowest_links(links: Links, members: tuple[int, ...]) -> float:
    """The most links that a member can have for sending to each of the others, by any ways.

    Bytes between two halves of `members` have only the links between those: of all ways to cut the
    members in two, S and the rest, the one with the fewest links for the |S| (n - |S|) pairs
    across it counts, times the n - 1 others. Cutting off one member alone gives its own links.
    """
    first, *rest = members
    n, least = len(members), float("inf")
    for size in range(n - 1):
        for chosen in combinations(rest, size):
            here = {first, *chosen}
            across = sum(links[i][j] for i in here for j in members if j not in here)
            least = min(least, across * (n - 1) / (len(here) * (n - len(here))))
    return least
