"""Rings over links between pairs of chips of a node, where not every chip reaches every other.

    0 = 1        two chips: as many rings as links
    |   ||       more: a closed walk through all of them gives two rings, one each way round, and
    2 - 3        takes a link of every pair that it passes; as many walks as the links allow

A walk may pass one chip on the way between two others that have no link (NVLink bridges a hop).
Searched in full where nodes have eight chips or fewer and few links; the search of others ends
after some tries, as NCCL's does (NVIDIA/nccl 2.30.7, src/graph/search.cc).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np

from scaling.meshes.cluster import Cluster

Links = tuple[tuple[int, ...], ...]  # [chips, chips]: links side by side
Walk = tuple[int, ...]  # chips in order, back to the first; one that is only passed comes twice
FAST = ("nvlink", "xgmi")  # kinds of links that chips have to each other
MOST_CHIPS = 8  # of a search: 2,520 walks
TRIES = 1000  # of combinations: a fifth of a second; known nodes take fewer than ten


def direct_links(cluster: Cluster, kinds: Sequence[str]) -> Links:
    """Number of links of `kinds` between each two chips of a node, as wired in pairs."""
    chips = cluster.parts["chip"]
    counts = [[0] * chips for _ in range(chips)]
    for link in cluster.links:
        if link.kind in kinds and link.wiring == "pairs" and link.parts == ("chip", "chip"):
            for i, j in link.pairs:
                counts[i][j] += link.count
                counts[j][i] += link.count
    return tuple(map(tuple, counts))


@lru_cache(maxsize=4096)
def ring_count(links: Links, members: tuple[int, ...]) -> int:
    """The most rings, one way round each, that the links between `members` (chips) hold at once."""
    if len(members) == 2:
        return links[members[0]][members[1]]
    if len(members) > MOST_CHIPS:
        return 0
    pairs = list(combinations(sorted(members), 2))
    capacity = np.array([links[i][j] for i, j in pairs])
    walks = np.array([[edges[pair] for pair in pairs] for edges in map(_edges, _walks(members))])
    ends = np.array([[chip in pair for pair in pairs] for chip in members])
    if most := _most(walks, capacity, ends):
        return 2 * most
    longer = (_with_detour(walk, links, members) for walk in _walks(members))
    fits = lambda walk: all(links[i][j] >= n for (i, j), n in _edges(walk).items())
    return 2 * any(walk is not None and fits(walk) for walk in longer)


Edge = tuple[int, int]  # two chips, the lower number first


def _walks(members: tuple[int, ...]) -> Iterator[Walk]:
    """Closed walks through all members, each in one of its two directions."""
    first, *rest = members
    for order in permutations(rest):
        if order[0] < order[-1]:
            yield (first, *order)


def _edges(walk: Walk) -> Counter[Edge]:
    """Number of times that a closed walk passes each pair of chips."""
    return Counter((min(ends), max(ends)) for ends in zip(walk, (*walk[1:], walk[0]), strict=True))


def _with_detour(walk: Walk, links: Links, members: tuple[int, ...]) -> Walk | None:
    """The walk with a chip between the one pair of it that lacks a link; None if that is not so."""
    missing = [k for k, i in enumerate(walk) if not links[i][walk[(k + 1) % len(walk)]]]
    if len(missing) != 1:
        return None
    after = missing[0] + 1
    for chip in members:
        longer = (*walk[:after], chip, *walk[after:])
        if all(links[a][b] >= n for (a, b), n in _edges(longer).items()):
            return longer
    return None


def _most(walks: np.ndarray, capacity: np.ndarray, ends: np.ndarray) -> int:
    """The most walks, repeats allowed, that fit into the links at once; or that TRIES tries find.

    `walks` and `capacity` are links of each pair of chips, [walks, pairs] and [pairs]; `ends` says
    which pairs a chip belongs to, [chips, pairs]: a walk takes two links of every chip.
    """
    room = lambda left: int((ends @ left).min()) // 2
    best, stack = 0, [(0, walks, capacity)]
    for _ in range(TRIES):
        if not stack or best == room(capacity):
            break
        count, fitting, left = stack.pop()
        best = max(best, count)
        if count + room(left) <= best:
            continue
        fitting = fitting[(fitting <= left).all(axis=1)]
        # the last one has most links to spare
        fitting = fitting[np.argsort(fitting @ left, kind="stable")]
        stack += [(count + 1, fitting[: n + 1], left - walk) for n, walk in enumerate(fitting)]
    return best
