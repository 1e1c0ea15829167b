"""Per-link contention: bytes that all groups of a collective put on the busiest links of a level.

    devices   0 1 2 3 | 4 5 6 7 ..    one group of 16 on nodes of 4
    runs      4 of 16 | 4 of 16 ..    members of one group in one unit and pool
    class     4 in unit, 16 in region  members in the unit, and in the region its links serve
    pools     4 x that, x 4 nodes     side by side and alike: one row

Members that lie alike are a class, counted once and weighted, so that groups of 16 devices and of
16,384 cost the same. Everything is counted in passes over arrays, without sorting, since labels do
not fall from device to device (`scaling.meshes.levels`). Bytes are counted as in "How to Scale Your
Model" (jax-ml/scaling-book, gpus.md, 2026-06).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS, SENDS, Boundary, LinkLoad, algorithms_of
from scaling.collectives.pair_links import have_rings, own_links_share, ring_counts
from scaling.collectives.run_lengths import column_classes, run_lengths, run_starts, run_sums
from scaling.collectives.torus import split_permute_share, torus_load, torus_permute_load
from scaling.meshes.cluster import Cluster, Level
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.link_figures import link_of
from scaling.meshes.placement import crossed_level
from scaling.program.ir import CollectiveKind

Loads = tuple[tuple[NetworkLevel, LinkLoad], ...]


@dataclass(frozen=True, eq=False)
class PlacedGroups:
    """Groups of devices, int array [groups, ranks], on a cluster."""

    groups: np.ndarray
    cluster: Cluster

    @property
    def ranks(self) -> int:
        """Members of a group."""
        return int(self.groups.shape[1])

    @cached_property
    def crossed_level(self) -> Level:
        """The highest level that any group crosses; "chip": every group has one member."""
        return crossed_level(self.groups, self.cluster)

    @cached_property
    def nodes(self) -> int:
        """The most nodes, or NVLink domains, that one group crosses."""
        domain = self.cluster.devices_per_node * self.cluster.domain_nodes
        domains = in_order(self.groups) // domain
        return 1 + int((domains[:, 1:] != domains[:, :-1]).sum(axis=1).max(initial=0))

    @cached_property
    def cache(self) -> dict[tuple[str, ...], Any]:
        """Loads by kind; candidates by kind and algorithm (`scaling.collectives.candidates`)."""
        return {}

    def loads(self, kind: CollectiveKind) -> Mapping[str, Loads]:
        """Every level with the load of a collective in all groups at once, for each algorithm.

        A permute loads the links by its pairs, whatever the algorithm is called.
        """
        if (kind,) not in self.cache:
            names = tuple(ALGORITHMS) if kind == "permute" else algorithms_of(kind)
            columns = []
            for level, classes in zip(self.levels, self.classes, strict=True):
                alike = kind == "permute" or level.grid is not None  # whatever the algorithm
                loads = [
                    (level, level_load(kind, self.groups, level, name, classes))
                    for name in (names[:1] if alike else names)
                ]
                columns.append(loads * len(names) if alike else loads)
            self.cache[kind,] = dict(zip(names, zip(*columns, strict=True), strict=True))
        by_algorithm: Mapping[str, Loads] = self.cache[kind,]
        return by_algorithm

    @cached_property
    def levels(self) -> tuple[NetworkLevel, ...]:
        """The network levels that the groups can use, from the chip outwards."""
        return levels_for(self.groups, self.cluster)

    @cached_property
    def classes(self) -> tuple["GroupClasses | None", ...]:
        """The classes of members at each level; None for a torus, where every chip forwards."""
        ordered = in_order(self.groups)
        return tuple(None if level.grid else group_classes(ordered, level) for level in self.levels)


def place_groups(groups: np.ndarray, cluster: Cluster) -> PlacedGroups:
    """Groups (of type int) on a cluster; cached by their device ids."""
    return _place_groups(groups.tobytes(), groups.shape, cluster)


@lru_cache(maxsize=1024)
def _place_groups(ids: bytes, shape: tuple[int, ...], cluster: Cluster) -> PlacedGroups:
    return PlacedGroups(np.frombuffer(ids, int).reshape(shape), cluster)


def split_loads(kind: CollectiveKind, placement: PlacedGroups, loads: Loads) -> Loads:
    """The loads with a permute's messages split over all shortest ways of a torus; others as is.

    A textbook has it so; no compiler that we know does it.
    """
    if kind != "permute":
        return loads
    pairs = pairs_of(placement.groups)
    split = {i: split_permute_share(*pairs, at.grid) for i, (at, _) in enumerate(loads) if at.grid}
    return tuple(
        (level, replace(load, share=min(load.share, split.get(i, load.share))))
        for i, (level, load) in enumerate(loads)
    )


def level_load(
    kind: CollectiveKind,
    groups: np.ndarray,
    level: NetworkLevel,
    algorithm: str = "hierarchical",
    classes: "GroupClasses | None" = None,
) -> LinkLoad:
    """The load of a collective in all `groups` (device ids, [groups, ranks]) on one level."""
    if level.grid is not None:  # every algorithm runs along its rings and lines
        if kind == "permute":
            return torus_permute_load(*pairs_of(groups), level.grid)
        return torus_load(kind, groups, level.grid)
    classes = classes or group_classes(in_order(groups), level)
    if kind != "permute":
        return _classes_load(kind, classes, level, algorithm)
    return _pair_permute(groups, level, classes) if level.pair_links else _permute(groups, level)


def levels_for(groups: np.ndarray, cluster: Cluster) -> tuple[NetworkLevel, ...]:
    """The levels that groups use: rings over links between pairs of chips, or else PCIe."""
    every = levels(cluster)
    links = next((level.pair_links for level in every if level.pair_links), ())
    if not links:
        return every
    if have_rings(in_order(groups), links):
        return tuple(level for level in every if not level.without_rings)
    if not any(level.without_rings for level in every):
        link_of(cluster, "chip", "pcie")  # raises: there is none
    return tuple(level for level in every if not level.pair_links)


def in_order(groups: np.ndarray) -> np.ndarray:
    """The groups with the members of each in the order of the devices."""
    if bool((groups[:, 1:] >= groups[:, :-1]).all()):
        return groups
    return np.sort(groups, axis=1)


def pairs_of(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of a permute: a row of two is a pair, a longer one a ring."""
    if groups.shape[1] == 2:
        return groups[:, 0], groups[:, 1]
    return groups.ravel(), np.roll(groups, -1, axis=1).ravel()


# How groups lie at a level


@dataclass(frozen=True, eq=False)
class GroupClasses:
    """Members that leave their unit, as classes of alike ones; pools with the same load once."""

    at: Boundary
    rings: np.ndarray  # rings over links between pairs that share a member's bytes, or 1; [classes]
    counts: np.ndarray  # members of each class in one pool; float [distinct pools, classes]
    users: np.ndarray  # groups that use one pool; int [distinct pools]
    units: int  # units that one group has within one parent, at most


def group_classes(groups: np.ndarray, level: NetworkLevel) -> GroupClasses:
    """The classes of members at one level; groups are device ids [groups, ranks], `in_order`."""
    flat, ranks, labels = groups.ravel(), groups.shape[1], level.labels
    new = run_starts(labels.unit[flat], labels.pool[flat])
    new[::ranks] = True
    starts = np.flatnonzero(new)  # of runs: members of one group in one unit and pool
    group, first, members = starts // ranks, flat[starts], run_lengths(starts, flat.size)
    unit, pool, region = labels.unit[first], labels.pool[first], labels.region[first]
    new_unit, new_region = run_starts(group, unit), run_starts(group, region)
    in_unit, in_region = run_sums(members, new_unit), run_sums(members, new_region)
    units = run_sums(new_unit.astype(int), new_region)
    rings = np.ones(len(starts), int)
    if links := level.pair_links:
        rings = ring_counts(flat % len(links), starts[new_region], links)[np.cumsum(new_region) - 1]
    neighbours = run_sums(new_unit.astype(int), run_starts(group, labels.parent[first]))
    crosses = np.flatnonzero(in_unit < in_region)
    traits = np.stack([in_unit, in_region, units, rings])[:, crosses]
    number, examples = column_classes(traits)
    counts, users = _pool_counts(group[crosses], pool[crosses], members[crosses], number)
    in_unit, in_region, units, rings = traits[:, examples]
    boundary = Boundary(in_unit, in_region, units, ranks, level.innermost)
    return GroupClasses(boundary, rings, counts, users, int(neighbours.max()))


def _pool_counts(
    group: np.ndarray, pool: np.ndarray, members: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Members of each class in each pool, float [distinct pools, classes]; groups that use it.

    Neighbouring pools that are alike stand once. Each run has a group, a pool, a number of members
    and the number of its class; int [runs].
    """
    pools, classes = int(pool.max(initial=0)) + 1, int(number.max(initial=-1)) + 1
    cells = np.bincount(pool * classes + number, members, pools * classes)
    counts = cells.reshape(pools, classes)
    users = np.bincount(pool[run_starts(group, pool)], minlength=pools)
    distinct = np.flatnonzero(run_starts(users, *counts.T))
    return counts[distinct], users[distinct]


def _classes_load(
    kind: CollectiveKind, classes: GroupClasses, level: NetworkLevel, algorithm: str
) -> LinkLoad:
    """The load of a collective, other than a permute."""
    rule, at = ALGORITHMS[algorithm], classes.at
    steps = rule.serial_steps(kind, at.ranks)
    if not classes.counts.size or (level.point_to_point and kind not in SENDS):
        return LinkLoad(0.0, 0, classes.units, steps)
    on_rings = kind == "all-to-all" and bool(level.pair_links)
    sent = at.in_region**2 // 4 / at.ranks if on_rings else rule.bytes_out(kind, at)
    sent = sent / classes.rings
    if level.peers:  # only the links to members of the group carry anything
        sent = sent * level.peers / (at.in_region - at.in_unit)
    totals = classes.counts @ sent
    busiest = int(np.argmax(totals))
    least = None
    if on_rings:
        least = float(((at.in_region - 1) / at.ranks).max()) / max(map(sum, level.pair_links))
    return LinkLoad(
        float(totals[busiest]), int(classes.users[busiest]), classes.units, steps, min_share=least
    )


def _permute(groups: np.ndarray, level: NetworkLevel) -> LinkLoad:
    """Pairs that cross: out of the busiest pool, or into it; with a link to each peer, one link."""
    labels = level.labels
    source, target = pairs_of(groups)
    crosses = labels.unit[source] != labels.unit[target]
    crosses &= labels.region[source] == labels.region[target]
    if not crosses.any():
        return LinkLoad(0.0)
    source, target = source[crosses], target[crosses]
    if level.peers:
        most = int(np.unique(source * len(labels.unit) + target, return_counts=True)[1].max())
        return LinkLoad(float(most) * level.peers, most, 2)
    busiest = max(int(np.bincount(labels.pool[ends]).max()) for ends in (source, target))
    return LinkLoad(float(busiest), busiest, 2)


def _pair_permute(groups: np.ndarray, level: NetworkLevel, classes: GroupClasses) -> LinkLoad:
    """Over links between pairs: each pair's own links, or all of them round the groups' rings."""
    links = level.pair_links
    source, target = pairs_of(groups)
    near = (source // len(links) == target // len(links)) & (source != target)
    if not near.any():
        return LinkLoad(0.0)
    share, hops = own_links_share(source[near], target[near], links), 1
    if share is None:
        share = float((classes.at.in_region / classes.rings).max())
        hops = int(classes.at.in_region.max()) // 2
    return LinkLoad(share, 1, 2, min_share=1 / max(map(sum, links)), hops_per_message=hops)
