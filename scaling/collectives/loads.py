"""What all groups of a collective put on every uplink of a cluster; what was counted is kept.

Groups are counted once (`collectives.contention`), and each kind and algorithm is a short sum over
the classes that were found. The same groups in the same cluster are the same question.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from scaling.collectives.contention import Crossing, chip_sets, crossing, in_order
from scaling.collectives.traffic import STRAIGHT, Load, crossing_load, load
from scaling.meshes.cluster import Cluster, Level, level_nodes
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.link_figures import link_of
from scaling.meshes.rings import Links, ring_count
from scaling.profiles.profile import Algorithm
from scaling.program.ir import CollectiveKind

Loads = tuple[tuple[NetworkLevel, Load], ...]


@dataclass(frozen=True, eq=False)
class Placed:
    """Groups of devices, int array [groups, members], in a cluster."""

    groups: np.ndarray
    cluster: Cluster

    @cached_property
    def level(self) -> Level:
        """The highest that any of the groups has to cross; "chip": nobody has anyone to talk to."""
        return crossed_level(self.groups, self.cluster)

    @cached_property
    def uplinks(self) -> tuple[NetworkLevel, ...]:
        """Those of the cluster, inside out."""
        return levels_for(self.groups, self.cluster)

    @cached_property
    def crossings(self) -> tuple[Crossing | None, ...]:
        """Who crosses each uplink; None for those of a torus, where every chip is on the way."""
        ordered = in_order(self.groups)
        return tuple(
            None if uplink.grid else crossing(ordered, uplink.labels, uplink.pair_links)
            for uplink in self.uplinks
        )


def placed(groups: np.ndarray, cluster: Cluster) -> Placed:
    """Groups (of type int) in a cluster; those of an earlier question, if they are the same."""
    return _placed(groups.tobytes(), groups.shape, cluster)


@lru_cache(maxsize=4096)
def loads_of(kind: CollectiveKind, where: Placed, algorithm: Algorithm, skew: float = 1.0) -> Loads:
    """All uplinks, and what they carry: nothing where no group leaves a unit."""
    if kind == "permute" or skew > 1:
        return tuple((u, load(kind, where.groups, u, algorithm, skew)) for u in where.uplinks)
    found = zip(where.uplinks, where.crossings, strict=True)
    return tuple((uplink, _load(kind, where, uplink, some, algorithm)) for uplink, some in found)


def crossed_level(groups: np.ndarray, cluster: Cluster) -> Level:
    """The highest level that any of the groups has to cross: units hold devices in a row."""
    first, last = groups.min(axis=1), groups.max(axis=1)
    if bool((first == last).all()):
        return "chip"
    for level, size in level_nodes(cluster).items():
        unit = size * cluster.devices_per_node
        if bool((first // unit == last // unit).all()):
            return level
    raise AssertionError("the highest level holds every device")


def levels_for(groups: np.ndarray, cluster: Cluster) -> tuple[NetworkLevel, ...]:
    """The levels that the groups [groups, members] use: rings over links between pairs, or PCIe."""
    every = levels(cluster)
    links = next((level.pair_links for level in every if level.pair_links), ())
    if not links:
        return every
    if have_rings(groups, links):
        return tuple(level for level in every if not level.without_rings)
    if not any(level.without_rings for level in every):
        link_of(cluster, "chip", "pcie")
    return tuple(level for level in every if not level.pair_links)


def have_rings(groups: np.ndarray, links: Links) -> bool:
    """Whether links between pairs of chips hold a ring of every group's members in each node."""
    n = len(links)
    flat, members = in_order(groups).ravel(), groups.shape[1]
    begins = np.append(True, flat[1:] // n != flat[:-1] // n)
    begins[::members] = True
    sets, _ = chip_sets(flat % n, np.flatnonzero(begins))
    found = [ring_count(links, chips) for chips in sets if len(chips) > 1]
    return bool(found) and all(found)


@lru_cache(maxsize=1024)
def _placed(ids: bytes, shape: tuple[int, ...], cluster: Cluster) -> Placed:
    return Placed(np.frombuffer(ids, int).reshape(shape), cluster)


def _load(
    kind: CollectiveKind,
    where: Placed,
    uplink: NetworkLevel,
    found: Crossing | None,
    algorithm: Algorithm,
) -> Load:
    if found is None:
        return load(kind, where.groups, uplink)
    if uplink.pair_links and kind in STRAIGHT:
        return load(kind, where.groups, uplink, algorithm)
    return crossing_load(kind, found, uplink, algorithm)
