"""The links that two calls at once share, and how busy each call keeps them.

    call                 NVLink of a chip   NICs of a node
    permute[context]             0.2              0.9          share of its time
    all-gather[fsdp]             0.3              0.8
    together                     0.5              1.7          so both take 1.7 times as long

Links of a level are one pool, but for those that chips have to one another: on a torus the links of
each dimension are apart, and of direct links between chips those of each distance in device
numbers, so that two axes of a mesh, which never join the same two chips, do not share them.
"""

from functools import lru_cache

import numpy as np

from scaling.collectives.candidates import Candidate
from scaling.collectives.contention import PlacedGroups
from scaling.meshes.cluster import Cluster
from scaling.meshes.levels import NetworkLevel, levels


@lru_cache(maxsize=64)
def pools(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """The pools of links of each level, by its name: from and up to a number."""
    ranges, start = {}, 0
    for level in levels(cluster):
        pools = 1
        if level.grid is not None:
            pools = len(level.grid.shape)
        elif level.peers or level.pair_links:
            pools = cluster.devices_per_node - 1
        ranges[level.name] = start, start + pools
        start += pools
    return ranges


def count(cluster: Cluster) -> int:
    """Number of all pools."""
    return max((end for _, end in pools(cluster).values()), default=0)


def wire_times(candidate: Candidate, placement: PlacedGroups) -> np.ndarray:
    """Seconds per byte of a call in which each pool of links is busy: float [pools]."""
    ranges, times = pools(placement.cluster), np.zeros(count(placement.cluster))
    for one in candidate.loaded:
        start, end = ranges[one.level.name]
        times[start:end] = one.per_byte * _used(one.level, placement.groups, end - start)
    return times


def _used(level: NetworkLevel, groups: np.ndarray, pools: int) -> np.ndarray:
    """Which pools of a level's links lie between members of a group: bool [pools]."""
    if pools == 1:
        return np.ones(1, bool)
    if level.grid is not None:
        places = level.grid.positions[groups]  # [groups, members, dims]
        return (places != places[:, :1]).any(axis=(0, 1))
    if groups.shape[1] > pools:  # of those that leave the node one tells all
        groups = groups[:1, level.labels.region[groups[0]] == level.labels.region[groups[0, 0]]]
    node = level.labels.region[groups]
    apart = np.abs(groups[:, :, None] - groups[:, None, :])
    return np.isin(np.arange(1, pools + 1), apart[node[:, :, None] == node[:, None, :]])
