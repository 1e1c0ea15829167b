"""How many rings the links between chips of a node hold, where not every chip reaches every other.

    0 = 1        two chips: as many rings as links
    |   ||       more: a closed walk through all of them gives two rings, one each way round, and
    2 - 3        takes a link of every pair that it passes; as many walks as the links allow

A walk may pass one chip on the way between two others that have no link (NVLink bridges a hop).
Searched in full: nodes have eight chips or fewer with such links, and every link is in few walks.
NCCL searches its rings likewise (NVIDIA/nccl 2.30.7, src/graph/search.cc).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations

from meshes.cluster import Cluster

Links = tuple[tuple[int, ...], ...]  # [chips, chips]: links side by side
MOST_CHIPS = 8  # of a search in full: 2,520 walks


def direct_links(cluster: Cluster, kinds: Sequence[str]) -> Links:
    """Links of `kinds` between the chips of a node that stand in pairs."""
    chips = cluster.parts["chip"]
    found = [[0] * chips for _ in range(chips)]
    for joint in cluster.joints:
        if joint.kind in kinds and joint.wiring == "pairs" and joint.parts == ("chip", "chip"):
            for i, j in joint.pairs:
                found[i][j] += joint.count
                found[j][i] += joint.count
    return tuple(map(tuple, found))


@lru_cache(maxsize=4096)
def ring_count(links: Links, members: tuple[int, ...]) -> int:
    """Rings, each in one direction, that hold all `members` (chips) at once; 0: there is none."""
    if len(members) == 2:
        return links[members[0]][members[1]]
    if len(members) > MOST_CHIPS:
        return 0
    room = Counter({_edge(i, j): links[i][j] for i in members for j in members if i < j})
    direct = [walk for walk in _walks(members) if _fits(walk, room)]
    if direct:
        return 2 * _packed(direct, room)
    passing = (_passing(walk, links, members) for walk in _walks(members))
    return 2 * any(walk is not None and _fits(walk, room) for walk in passing)


@lru_cache(maxsize=4096)
def straight_links(links: Links, members: tuple[int, ...]) -> float:
    """Links that a member has for sending to each of the others, as if nobody were in its way.

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


Edge = tuple[int, int]


def _walks(members: tuple[int, ...]) -> Iterator[Counter[Edge]]:
    """Pairs that each closed walk through all members passes; each walk once."""
    first, *rest = members
    for order in permutations(rest):
        if order[0] < order[-1]:
            chips = (first, *order, first)
            yield Counter(map(_edge, chips[:-1], chips[1:]))


def _passing(walk: Counter[Edge], links: Links, members: tuple[int, ...]) -> Counter[Edge] | None:
    """The walk with one pair that lacks a link replaced by two that have one."""
    missing = [edge for edge in walk if not links[edge[0]][edge[1]]]
    if len(missing) != 1:
        return None
    i, j = missing[0]
    for chip in members:
        both = Counter((_edge(i, chip), _edge(chip, j)))
        replaced = walk - Counter(missing) + both
        if all(links[a][b] >= n for (a, b), n in replaced.items()):
            return replaced
    return None


def _packed(walks: Sequence[Counter[Edge]], room: Counter[Edge]) -> int:
    """The most walks, repeats allowed, that fit at once."""
    best = 0
    for number, walk in enumerate(walks):
        if _fits(walk, room):
            best = max(best, 1 + _packed(walks[number:], room - walk))
    return best


def _fits(walk: Counter[Edge], room: Counter[Edge]) -> bool:
    return all(room[edge] >= n for edge, n in walk.items())


def _edge(i: int, j: int) -> Edge:
    return (i, j) if i < j else (j, i)
