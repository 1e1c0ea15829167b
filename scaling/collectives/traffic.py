"""Which links a collective loads, and how much: bytes that leave each unit of each level.

    chip --NVLink-- node --NICs-- leaf group --spines-- ...        one uplink per unit of a level

What one group puts on the uplink of a unit is the algorithm's (`collectives.algorithms`); all
groups that cross the same unit add up. A permute loads what its own pairs cross, a skewed
all-to-all the busier direction (`scaling.collectives.skew`).

NVLink serves the chips of a node (or of an NVLink domain): what comes from other nodes arrives
through a chip's own NIC. All other uplinks serve the whole cluster; the links of a torus
(`scaling.collectives.torus`) its slice. Bytes are counted from the
groups themselves, as in "How to Scale Your Model" (jax-ml/scaling-book, gpus.md, 2026-06).
"""

from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.algorithms import shares, transfers
from scaling.collectives.bridges import permuted_share
from scaling.collectives.contention import Crossing, crossing, in_order, parts_of
from scaling.collectives.skew import skewed_share
from scaling.collectives.torus import grid_share
from scaling.collectives.torus_permutes import pair_share
from scaling.meshes.detours import narrowest_links, straight_links
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.torus import TorusGrid
from scaling.profiles.profile import Algorithm
from scaling.program.ir import CollectiveKind

STRAIGHT: tuple[CollectiveKind, ...] = ("permute", "all-to-all")  # from chip to chip


@dataclass(frozen=True)
class Load:
    """What a collective puts on the busiest pool of an uplink."""

    share: float  # bytes over it per byte of the call
    groups: int  # groups that use that pool at once
    neighbours: int  # units that one group joins within a parent, at most
    transfers: int = 0  # of one piece by one member, one after another; 0: they all overlap
    least: float | None = None  # the share that no order of steps gets below; None: `share`
    hops: float | None = None  # on a torus, while bytes flow already; None: the algorithm's
    legs: int = 1  # links in a row of each of the algorithm's hops


def load(
    kind: CollectiveKind,
    groups: np.ndarray,
    uplink: NetworkLevel,
    algorithm: Algorithm = "hierarchical",
    skew: float = 1.0,
) -> Load:
    """The load of a collective in all `groups` (device ids, [groups, members]) at once.

    Args:
        skew: of an all-to-all, what the busiest receiver gets over the mean.
    """
    if uplink.grid is not None:
        return _grid_load(kind, groups, uplink.grid, skew)
    if kind == "permute":
        return _permute_load(groups, uplink)
    if skew > 1:
        return _skewed_load(groups, uplink, algorithm, skew)
    if uplink.pair_links and kind == "all-to-all":
        return _bridged_load(groups, uplink, algorithm)
    found = crossing(in_order(groups), uplink.labels, uplink.pair_links)
    return crossing_load(kind, found, uplink, algorithm)


def crossing_load(
    kind: CollectiveKind, found: Crossing, uplink: NetworkLevel, algorithm: Algorithm
) -> Load:
    """The load of a collective, other than a permute, of which is known what crosses."""
    pieces = transfers(algorithm, kind, found.members)
    if not found.counts.size or (uplink.point_to_point and kind not in STRAIGHT):
        return Load(0.0, 0, found.neighbours, pieces)
    innermost = uplink.innermost
    each = shares(algorithm, kind, found.inside, found.within, found.members, innermost)
    each = each / found.rings
    if uplink.peers:  # only the links to members of the group carry anything
        each = each * uplink.peers / (found.within - found.inside)
    totals = found.counts @ each
    busiest = int(np.argmax(totals))
    return Load(float(totals[busiest]), int(found.users[busiest]), found.neighbours, pieces)


def _skewed_load(
    groups: np.ndarray, uplink: NetworkLevel, algorithm: Algorithm, skew: float
) -> Load:
    parts, members = parts_of(in_order(groups), uplink.labels, uplink.pair_links), groups.shape[1]
    share, users = skewed_share(parts, members, skew, uplink.peers)
    if uplink.pair_links:  # some pairs have no link: those that they go by carry no less than even
        share = max(share, load("all-to-all", groups, uplink, algorithm).share)
    pieces = transfers(algorithm, "all-to-all", members)
    return Load(share, users, parts.neighbours, pieces)


def _bridged_load(groups: np.ndarray, uplink: NetworkLevel, algorithm: Algorithm) -> Load:
    """An all-to-all over links between pairs: by the shortest ways, and at least by the best."""
    found, best = (
        crossing(in_order(groups), uplink.labels, uplink.pair_links, count)
        for count in (straight_links, narrowest_links)
    )
    taken, least = (crossing_load("all-to-all", c, uplink, algorithm) for c in (found, best))
    return replace(taken, least=least.share)


def _grid_load(kind: CollectiveKind, groups: np.ndarray, grid: TorusGrid, skew: float) -> Load:
    """On a torus every algorithm is its rings."""
    if kind == "permute":
        found = pair_share(*pairs_of(groups), grid)
    else:
        found = grid_share(kind, groups, grid, skew)
    return Load(found.share, found.groups, found.members, 0, found.least, found.hops)


def _permute_load(groups: np.ndarray, uplink: NetworkLevel) -> Load:
    """Pairs that cross: out of the busiest pool, or into it; with a link to each peer, one link."""
    if uplink.pair_links:
        share, least, legs = permuted_share(groups, uplink.pair_links)
        return Load(share, int(share > 0), 1 + int(share > 0), least=least, legs=legs)
    places = uplink.labels
    source, target = pairs_of(groups)
    leaving = places.unit[source] != places.unit[target]
    crossing = leaving & (places.region[source] == places.region[target])
    if not crossing.any():
        return Load(0.0, 0, 1)
    source, target = source[crossing], target[crossing]
    if uplink.peers:
        links = np.sort(source * len(places.unit) + target)
        ends = np.flatnonzero(np.append(links[1:] != links[:-1], True))
        most = int(np.diff(ends, prepend=-1).max())
        return Load(float(most) * uplink.peers, most, 2)
    busiest = max(int(np.bincount(places.pool[ends]).max()) for ends in (source, target))
    return Load(float(busiest), busiest, 2)


def pairs_of(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of a permute: a row of two is a pair, a longer one a ring."""
    if groups.shape[1] == 2:
        return groups[:, 0], groups[:, 1]
    return groups.ravel(), np.roll(groups, -1, axis=1).ravel()
