"""Seconds of one collective: the busiest link of any level, and the hops of its algorithm.

    time = alpha + hops x latency + max over levels of  bytes over the uplink / its bandwidth

Each algorithm puts its own bytes and hops on the levels (`collectives.algorithms`); all groups
that run at once share the uplinks (`collectives.traffic`). On a torus the latency of the links
overlaps with the bytes, and the longer of the two counts. Of the algorithms that can run, and of
their protocols, the fastest is taken. Inside a node whose collectives were measured (`scaling
calibrate`), the measured line is taken instead.
"""

from dataclasses import dataclass

import numpy as np

from scaling.collectives.candidates import Way, bottleneck, ways_of
from scaling.collectives.loads import Placed, loads_of, placed
from scaling.collectives.measured import fitted_time, nearest_fit
from scaling.collectives.skew import check_skew
from scaling.meshes.cluster import Cluster, Level
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_rate
from scaling.profiles.profile import CollectiveFit, Evidence, Profile
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind, Number


@dataclass(frozen=True)
class CollectiveCost:
    """Seconds of one call, and why."""

    time: Number
    lower_bound: Number  # no latency, every link at its full bandwidth
    level: Level  # the highest that the groups cross; "chip": nobody else takes part
    bottleneck: str  # in words, at the largest of the sizes
    algorithm: str  # one of ALGORITHMS, "measured", or "none" for a group of one
    protocol: str = ""
    evidence: Evidence | None = None  # of the figure that most of the time comes from
    ways: tuple[Way, ...] = ()  # all that were open, the one taken among them or not


def collective_time(
    kind: CollectiveKind,
    bytes: Number,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    algorithm: str = "auto",
    skew: float = 1.0,
) -> CollectiveCost:
    """Price one call in all groups at once.

    Args:
        kind: of the collective.
        bytes: size of the call as nccl-tests counts it: the full buffer of an all-reduce or
            broadcast, the unsharded total of an all-gather or reduce-scatter, what one rank sends
            in an all-to-all or permute.
        groups: device ids, int array [groups, members]. Of a permute, rows of two are (source,
            target) pairs; in longer rows each member sends to the next, the last to the first.
        cluster: where the devices are.
        profile: what its links achieve.
        algorithm: one of ALGORITHMS, or "auto": all that can run.
        skew: of an all-to-all, what the busiest receiver of each group gets over the mean; where
            these are, is the worst case (`scaling.collectives.skew`).

    Raises:
        InputError: device ids that the cluster lacks, an algorithm that cannot run there, a
            profile without a fitting figure, or a skew that there cannot be.
    """
    groups = _checked(kind, groups, cluster)
    if skew != 1:
        check_skew(kind, skew, groups.shape[1])
    where = placed(groups, cluster)
    level = where.level
    if level == "chip":
        return CollectiveCost(0.0 * bytes, 0.0 * bytes, level, "nobody else takes part", "none")
    if level == "node" and profile.collectives and algorithm == "auto":
        return _measured(kind, bytes, where, profile, skew)
    usable = ways_of(kind, where, profile, algorithm, skew)
    largest = float(np.max(bytes))
    time = np.min(np.array([r.seconds(bytes) for r in usable]), axis=0)
    best = min(usable, key=lambda r: r.seconds(largest))
    words, bound = bottleneck(best, largest), bytes * _least(kind, where, skew)
    names = (best.algorithm, best.protocol)
    return CollectiveCost(_number(time), bound, level, words, *names, best.evidence, tuple(usable))


def _least(kind: CollectiveKind, where: Placed, skew: float = 1.0) -> float:
    """Seconds per byte below which no algorithm gets: what the others lack, over each uplink.

    Where switches can add, each byte of an all-reduce has to pass only once, as in a broadcast.
    """
    per_byte = []
    once = loads_of("broadcast", where, "hierarchical") if kind == "all-reduce" else ()
    for i, (uplink, carried) in enumerate(loads_of(kind, where, "hierarchical", skew)):
        if once and uplink.can_reduce:
            carried = once[i][1]
        share = carried.share if carried.least is None else carried.least
        per_byte.append(share / uplink.bandwidth)
    return max(per_byte)


def _measured(
    kind: CollectiveKind, bytes: Number, where: Placed, profile: Profile, skew: float
) -> CollectiveCost:
    """The line that was measured in the node, never below what its links allow.

    All-to-alls are measured without skew: a skewed one takes as long as one in which everybody
    receives what its busiest receiver does.
    """
    fit = nearest_fit(kind, where.groups, profile)
    bound = _measured_bound(kind, bytes, where, fit, skew)
    words = f"{fit.groups} x {fit.ranks} devices: {format_rate(fit.bandwidth)} as measured"
    time = np.maximum(fitted_time(fit, skew * bytes), bound)
    return CollectiveCost(_number(time), bound, "node", words, "measured", evidence=fit.evidence)


def _measured_bound(
    kind: CollectiveKind, bytes: Number, where: Placed, fit: CollectiveFit, skew: float
) -> Number:
    """From the links, or without alpha where the links have no figures of their own."""
    if where.cluster.virtual_devices:
        return bytes / max(fit.bandwidth, fit.cache_bandwidth or 0.0)
    return bytes * _least(kind, where, skew)


def _checked(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> np.ndarray:
    """The groups as an int array of devices that exist."""
    if kind not in COLLECTIVE_KINDS:
        raise InputError(f"{kind!r} is no collective; there are {', '.join(COLLECTIVE_KINDS)}")
    groups = np.asarray(groups)
    if groups.ndim != 2 or groups.size == 0 or groups.dtype.kind not in "iu":
        raise InputError(f"groups must be whole numbers [groups, members], got {groups.shape}")
    if groups.min() < 0 or groups.max() >= cluster.devices:
        raise InputError(
            f"groups name device {int(groups.max())}, but {cluster.name} has {cluster.devices} "
            f"({cluster.nodes} nodes x {cluster.devices_per_node}), counted from 0"
        )
    return groups.astype(int, copy=False)


def _number(time: np.ndarray) -> Number:
    return time if np.ndim(time) else float(time)
