"""What all groups of a collective put on every uplink of a cluster; what was counted is kept.

Groups are counted once (`collectives.contention`), and each kind and algorithm is a short sum over
the classes that were found. The same groups in the same cluster are the same question.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from scaling.collectives.contention import Crossing, crossing, in_order
from scaling.collectives.traffic import STRAIGHT, Load, Uplink, crossing_load, load
from scaling.collectives.uplinks import have_rings, uplinks
from scaling.meshes.cluster import Cluster, Level, level_nodes
from scaling.profiles.profile import Algorithm
from scaling.program.ir import CollectiveKind

Loads = tuple[tuple[Uplink, Load], ...]


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
    def uplinks(self) -> tuple[Uplink, ...]:
        """Those of the cluster, inside out."""
        return uplinks(self.cluster, have_rings(self.cluster, self.groups))

    @cached_property
    def crossings(self) -> tuple[Crossing | None, ...]:
        """Who crosses each uplink; None for those of a torus, where every chip is on the way."""
        ordered = in_order(self.groups)
        return tuple(
            None if uplink.grid else crossing(ordered, uplink.places, uplink.paired)
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


@lru_cache(maxsize=1024)
def _placed(ids: bytes, shape: tuple[int, ...], cluster: Cluster) -> Placed:
    return Placed(np.frombuffer(ids, int).reshape(shape), cluster)


def _load(
    kind: CollectiveKind,
    where: Placed,
    uplink: Uplink,
    found: Crossing | None,
    algorithm: Algorithm,
) -> Load:
    if found is None:
        return load(kind, where.groups, uplink)
    if uplink.paired and kind in STRAIGHT:
        return load(kind, where.groups, uplink, algorithm)
    return crossing_load(kind, found, uplink, algorithm)
