"""Who crosses an uplink, folded: what is alike is counted once and stands for all of it.

    devices  0 1 2 3 | 4 5 6 7 ..    one group of 16 on nodes of 4
    parts    4 of 16 | 4 of 16 ..    members of one group in one unit and pool
    classes  4 of 16                 parts with as many members in the unit and in the region
    pools    4 x that, x 4 nodes     side by side and alike: one row

Each algorithm is then a sum over a few classes, whether the groups have 16 devices or 16,384. All
parts are found in passes over arrays, without sorting: labels do not fall from device to device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scaling.meshes.levels import LinkLabels
from scaling.meshes.rings import Links, ring_count

LinkCount = Callable[[Links, tuple[int, ...]], float]  # of some chips of a node


@dataclass(frozen=True, eq=False)
class Parts:
    """The members of one group in one unit and pool, for all groups: int arrays [parts]."""

    group: np.ndarray
    pool: np.ndarray
    count: np.ndarray  # members
    inside: np.ndarray  # members of the group in the unit
    within: np.ndarray  # in the region
    rings: np.ndarray  # that share what a member sends: 1, but with links between pairs of chips
    neighbours: int  # units that one group has within one parent, at most

    @property
    def crosses(self) -> np.ndarray:
        """Whether there are others of the group in the region; bool [parts]."""
        return self.inside < self.within


@dataclass(frozen=True, eq=False)
class Crossing:
    """The parts that cross, as classes of them and runs of pools that carry the same."""

    inside: np.ndarray  # int [classes]
    within: np.ndarray
    rings: np.ndarray
    counts: np.ndarray  # members of each class in one pool; float [runs of pools, classes]
    users: np.ndarray  # groups that use one pool; int [runs of pools]
    neighbours: int
    members: int  # of a group


def in_order(groups: np.ndarray) -> np.ndarray:
    """The groups with the members of each in the order of the devices."""
    if bool((groups[:, 1:] >= groups[:, :-1]).all()):
        return groups
    return np.sort(groups, axis=1)


def parts_of(
    groups: np.ndarray, places: LinkLabels, paired: Links = (), count: LinkCount = ring_count
) -> Parts:
    """The parts of all groups.

    Args:
        groups: device ids [groups, members], `in_order`.
        places: of the uplink.
        paired: links between the chips of a node, where the uplink is made of them.
        count: of these, what shares the bytes of so many chips: rings, or links of each.
    """
    flat, members = groups.ravel(), groups.shape[1]
    unit, pool = places.unit[flat], places.pool[flat]
    new = changes(unit) if places.pool is places.unit else changes(unit, pool)
    new[::members] = True
    starts = np.flatnonzero(new)
    group, first, here = starts // members, flat[starts], lengths(starts, flat.size)
    unit, region, parent = unit[starts], places.region[first], places.parent[first]
    regions = np.flatnonzero(changes(group, region))
    sets = (flat, starts[regions], paired, count)
    rings = _ring_counts(*sets) if paired else np.ones(len(regions), int)
    units = changes(group, unit)
    return Parts(
        group,
        pool[starts],
        here,
        _spread(np.add.reduceat(here, np.flatnonzero(units)), np.flatnonzero(units), len(here)),
        _spread(np.add.reduceat(here, regions), regions, len(here)),
        _spread(rings, regions, len(here)),
        int(np.add.reduceat(units, np.flatnonzero(changes(group, parent)), dtype=int).max()),
    )


def crossing(
    groups: np.ndarray, places: LinkLabels, paired: Links = (), count: LinkCount = ring_count
) -> Crossing:
    """What crosses, folded; arguments as of `parts_of`."""
    parts = parts_of(groups, places, paired, count)
    crosses = np.flatnonzero(parts.crosses)
    pool, group = parts.pool[crosses], parts.group[crosses]
    traits = np.stack([parts.inside, parts.within, parts.rings])[:, crosses]
    kind, examples = classes(traits)
    pools, kinds = int(pool.max(initial=0)) + 1, len(examples)
    cells = pools * kinds
    counts = np.bincount(pool * kinds + kind, parts.count[crosses], cells).reshape(pools, kinds)
    users = np.bincount(pool[changes(group, pool)], minlength=pools)
    runs = np.flatnonzero(changes(users, *counts.T))
    inside, within, rings = traits[:, examples]
    return Crossing(
        *(inside, within, rings, counts[runs], users[runs], parts.neighbours, groups.shape[1])
    )


def chip_sets(chips: np.ndarray, starts: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Distinct sets of chips among runs of `chips`, and the number of each run's set.

    Args:
        chips: of one node, 0 to 61; runs of them one after another.
        starts: where each run begins.
    """
    masks = np.bitwise_or.reduceat(np.left_shift(1, chips), starts)
    number, examples = classes(masks[None])
    sets = [tuple(i for i in range(62) if mask >> i & 1) for mask in masks[examples].tolist()]
    return sets, number


def _ring_counts(
    flat: np.ndarray,
    starts: np.ndarray,
    paired: Links,
    count: LinkCount,
) -> np.ndarray:
    """Rings (or links) through the chips of each run of devices; 1 where there are none."""
    sets, number = chip_sets(flat % len(paired), starts)
    counts = [count(paired, chips) if len(chips) > 1 else 1 for chips in sets]
    return np.maximum(1, np.array(counts))[number]


def classes(traits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns that are equal: the number of each one's class, and an example of every class.

    Args:
        traits: not negative; int [traits, columns].
    """
    if traits.shape[1] == 0 or bool((traits == traits[:, :1]).all()):
        return np.zeros(traits.shape[1], int), np.arange(min(1, traits.shape[1]))
    order = np.lexsort(traits)
    new = changes(*traits[:, order])
    number = np.empty(len(order), int)
    number[order] = np.cumsum(new) - 1
    return number, order[new]


def changes(*labels: np.ndarray) -> np.ndarray:
    """Where any of the labels differs from the one before it; the first always does."""
    new = np.ones(len(labels[0]), bool)
    np.not_equal(labels[0][1:], labels[0][:-1], out=new[1:])
    for other in labels[1:]:
        new[1:] |= other[1:] != other[:-1]
    return new


def lengths(starts: np.ndarray, size: int) -> np.ndarray:
    """Of runs that begin at `starts` and cover `size` places."""
    ends = np.empty_like(starts)
    ends[:-1], ends[-1] = starts[1:], size
    return ends - starts


def _spread(values: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """The value of each run for every place in it."""
    return np.repeat(values, lengths(starts, size))
