"""Bisection bandwidth: what the first half of all devices can send to the second, one direction.

Every level of the network whose links lead from one half to the other carries at most its units'
bandwidth; the narrowest level binds. A torus is cut across its longest even dimension: one link for
each chip of the cut, two where the dimension is a ring.
"""

import math
from typing import Literal

import numpy as np

from scaling.meshes.cluster import Cluster, torus_shape
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.torus import wraparound

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def bisection_bandwidth(cluster: Cluster) -> float | None:
    """Return bytes/s; None for an odd number of devices or nodes, and links between pairs only."""
    rates = [rate for level in levels(cluster) if (rate := _rate(level, cluster)) is not None]
    if not rates or cluster.devices % 2:
        return None
    for level in levels(cluster):
        pool = level.labels.pool  # non-decreasing
        middle = len(pool) // 2
        # some links of a level are of both halves, and others are not
        straddles = pool[0] != pool[-1] and pool[middle - 1] == pool[middle]
        if level.pair_links or straddles:
            return None
    return min(rates)


def _rate(level: NetworkLevel, cluster: Cluster) -> float | None:
    """bytes/s of one level from half to half; None where it does not lead there."""
    middle = cluster.devices // 2
    region = level.labels.region
    if region[middle - 1] != region[middle]:
        return None
    if level.grid is not None:
        assert cluster.torus is not None
        shape = torus_shape(cluster)
        even = [i for i, size in enumerate(shape) if size % 2 == 0]
        if not even:
            return None
        longest = max(even, key=lambda i: shape[i])
        closed = wraparound(cluster.torus, shape)[longest] and shape[longest] > 2
        return math.prod(shape) / shape[longest] * (2 if closed else 1) * level.bandwidth
    first, last = (int(np.searchsorted(region, region[middle], side)) for side in SIDES)
    halves = (level.labels.pool[first:middle], level.labels.pool[middle:last])
    pools = min(1 + np.count_nonzero(np.diff(half)) for half in halves)
    share = (last - middle) / level.peers if level.peers else 1.0  # of links to each other chip
    return float(pools * level.bandwidth * share)
