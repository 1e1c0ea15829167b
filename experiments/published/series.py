"""Series of published measurements: all sizes of one collective on one machine, on its cluster."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.published.collectives import Case
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind


@dataclass(frozen=True, eq=False)
class Series:
    """All sizes of one collective on one machine."""

    machine: str
    kind: CollectiveKind
    cluster: Cluster
    groups: np.ndarray  # device ids
    bytes: np.ndarray
    time: np.ndarray
    algorithm: str

    @property
    def ranks(self) -> int:
        """Members of a group."""
        return int(self.groups.shape[1])

    @property
    def nodes(self) -> int:
        """Nodes, or NVLink domains, that a group crosses."""
        domain = self.cluster.devices_per_node * self.cluster.domain_nodes
        return int(self.groups[0].max() // domain - self.groups[0].min() // domain) + 1

    def predicted(self, profile: Profile) -> np.ndarray:
        """Seconds as the simulator prices them, [sizes]."""
        where = (self.groups, self.cluster, profile, self.algorithm)
        return np.asarray(collective_time(self.kind, self.bytes, *where).time)


def series_of(cases: Sequence[Case]) -> list[Series]:
    """The cases of each series, ordered by size."""
    grouped: dict[tuple, list[Case]] = defaultdict(list)
    for case in cases:
        grouped[(*case.series, case.cluster, case.overrides)].append(case)
    return [_series(sorted(rows, key=lambda c: c.bytes)) for rows in grouped.values()]


def cluster_of(case: Case) -> Cluster:
    """The cluster on which a case was measured."""
    overrides = {**dict(case.overrides), "gpus_per_node": case.ranks_per_node}
    devices = catalog.load(case.cluster).devices_per_node
    if case.ranks_per_node * case.groups > devices and case.nodes == 1 or case.groups > 1:
        overrides.pop("gpus_per_node")
    return catalog.load(case.cluster, case.nodes, overrides)


def _series(cases: Sequence[Case]) -> Series:
    first = cases[0]
    ids = np.arange(first.ranks * first.groups).reshape(first.groups, first.ranks)
    arrays = (np.array([c.bytes for c in cases]), np.array([c.time for c in cases]))
    where = (first.machine, first.kind, cluster_of(first), ids)
    return Series(*where, *arrays, first.algorithm)
