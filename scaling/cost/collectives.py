"""Seconds of one collective: the busiest link of any level, and the hops of its algorithm.

    time = alpha + hops x latency + max over levels of  bytes over the uplink / its bandwidth

Each algorithm puts its own bytes and hops on the levels (`scaling.cost.algorithms`); all groups
that run at once share the uplinks (`scaling.cost.traffic`). On a torus the latency of the links
overlaps with the bytes, and the longer of the two counts. Of the algorithms that can run, and of
their protocols, the fastest is taken. Inside a node whose collectives were measured (`scaling
calibrate`), the measured line is taken instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np

from meshes.cluster import Cluster, Level, level_nodes
from meshes.errors import InputError, check_keys
from meshes.units import format_rate, format_size
from scaling.cost.algorithms import ALGORITHMS, KINDS, Algorithm, hops, is_chosen, refusal
from scaling.cost.profile import (
    CollectiveFit,
    Evidence,
    LinkFit,
    Profile,
    algorithms,
    link_fit,
    protocols,
)
from scaling.cost.traffic import Load, Uplink, load
from scaling.cost.uplinks import have_rings, uplinks
from scaling.program import COLLECTIVE_KINDS, CollectiveKind, Number

ON_TORUS = ("ring", "hierarchical", "pairwise")


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


@dataclass(frozen=True)
class _Route:
    """An algorithm under one protocol: seconds = latency + max(filling, per_byte x bytes)."""

    algorithm: Algorithm
    protocol: str
    latency: float
    per_byte: float
    uplink: Uplink
    load: Load
    evidence: Evidence
    filling: float = 0.0  # s, of hops on a torus: bytes flow meanwhile

    def seconds(self, bytes: Number) -> Number:
        """Of one call."""
        return self.latency + np.maximum(self.filling, self.per_byte * bytes)


def collective_time(
    kind: CollectiveKind,
    bytes: Number,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    algorithm: str = "auto",
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
        algorithm: one of ALGORITHMS, or "auto": the fastest that can run.

    Raises:
        InputError: device ids that the cluster lacks, an algorithm that cannot run there, or a
            profile without a fitting figure.
    """
    groups = _checked(kind, groups, cluster)
    level = crossed_level(groups, cluster)
    if level == "chip":
        return CollectiveCost(0.0 * bytes, 0.0 * bytes, level, "nobody else takes part", "none")
    if level == "node" and profile.collectives and algorithm == "auto":
        return _measured(kind, bytes, groups, cluster, profile)
    usable = _routes(kind, groups, cluster, profile, algorithm)
    time = np.min(np.array([r.seconds(bytes) for r in usable]), axis=0)
    largest = float(np.max(bytes))
    best = min(usable, key=lambda r: r.seconds(largest))
    words, bound = _bottleneck(best, largest), bytes * _least(kind, groups, cluster)
    return CollectiveCost(
        _number(time), bound, level, words, best.algorithm, best.protocol, best.evidence
    )


def _routes(
    kind: CollectiveKind, groups: np.ndarray, cluster: Cluster, profile: Profile, asked: str
) -> list[_Route]:
    """All ways that are open: what was asked for, or else every algorithm that can run."""
    found: list[_Route] = []
    for algorithm in _candidates(kind, profile, asked):
        loads = _loads(kind, groups, cluster, algorithm)
        units = _units(loads)
        reason = refusal(algorithm, kind, units, cluster.switch_reduction)
        if not reason and cluster.torus is not None and algorithm not in ON_TORUS:
            reason = f"{algorithm} does not run on a torus; what does: {', '.join(ON_TORUS)}"
        if reason and asked != "auto":
            raise InputError(f"{cluster.name}: {reason}")
        if not reason and (asked != "auto" or is_chosen(algorithm, units)):
            for protocol in protocols(profile, algorithm):
                way = _route(kind, algorithm, loads, profile, protocol)
                found += [way] if way is not None else []
    if not found:
        links = ", ".join(dict.fromkeys(u.link for u, carried in loads if carried.share > 0))
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    return found


def _candidates(kind: CollectiveKind, profile: Profile, asked: str) -> Iterable[Algorithm]:
    if asked != "auto":
        check_keys([asked], ALGORITHMS, "algorithm")
        return [a for a in ALGORITHMS if a == asked]
    own = [a for a in algorithms(profile, kind) if kind in KINDS[a]]
    return own or (["pairwise"] if kind == "all-to-all" else ["ring", "hierarchical"])


def crossed_level(groups: np.ndarray, cluster: Cluster) -> Level:
    """The highest level that any of the groups has to cross."""
    if bool((groups == groups[:, :1]).all()):
        return "chip"
    nodes = groups // cluster.devices_per_node
    for level, size in level_nodes(cluster).items():
        units = nodes // size
        if bool((units == units[:, :1]).all()):
            return level
    raise AssertionError("the highest level holds every device")


def _loads(
    kind: CollectiveKind, groups: np.ndarray, cluster: Cluster, algorithm: Algorithm
) -> tuple[tuple[Uplink, Load], ...]:
    """All uplinks, and what they carry: nothing where no group leaves a unit."""
    return _known_loads(kind, groups.tobytes(), groups.shape, cluster, algorithm)


@lru_cache(maxsize=4096)
def _known_loads(
    kind: CollectiveKind,
    ids: bytes,
    shape: tuple[int, ...],
    cluster: Cluster,
    algorithm: Algorithm,
) -> tuple[tuple[Uplink, Load], ...]:
    groups = np.frombuffer(ids, int).reshape(shape)
    all_ = uplinks(cluster, have_rings(cluster, groups))
    loads = ((uplink, load(kind, groups, uplink, algorithm)) for uplink in all_)
    return tuple(loads)


def _route(
    kind: CollectiveKind,
    algorithm: Algorithm,
    loads: Sequence[tuple[Uplink, Load]],
    profile: Profile,
    protocol: str,
) -> _Route | None:
    """The cost under one protocol, or None where the profile lacks it."""
    counts = _hops(kind, algorithm, loads)
    busy = [k for k, (_, carried) in enumerate(loads) if carried.share > 0]
    loads, counts = [loads[k] for k in busy], [counts[k] for k in busy]
    fits = [link_fit(profile, algorithm, kind, uplink.link, protocol) for uplink, _ in loads]
    known = [fit for fit in fits if fit is not None]
    if len(known) < len(fits):
        return None
    per_byte = [
        carried.share * uplink.passes / (uplink.bandwidth * fit.efficiency) * _stall(fit, carried)
        for (uplink, carried), fit in zip(loads, known, strict=True)
    ]
    # of equals, the first
    busiest = int(np.argmax(np.round(np.array(per_byte) / max(per_byte), 9)))
    waiting, filling = _latency(kind, counts, loads, known)
    latency = max(fit.alpha for fit in known) + waiting
    evidence = known[busiest].evidence
    return _Route(
        algorithm, protocol, latency, per_byte[busiest], *loads[busiest], evidence, filling
    )


def _stall(fit: LinkFit, carried: Load) -> float:
    return 1 + fit.stall / carried.transfers if carried.transfers else 1.0


def _units(loads: Sequence[tuple[Uplink, Load]]) -> list[int]:
    """Units that one group joins in each level, inside out; 1 where it has one member in each."""
    return [carried.neighbours for uplink, carried in loads if uplink.latency > 0] or [1]


def _hops(
    kind: CollectiveKind, algorithm: Algorithm, loads: Sequence[tuple[Uplink, Load]]
) -> list[float]:
    """Hops over each uplink that wait for one another; those without latency have none."""
    counts = iter(hops(algorithm, kind, _units(loads)))
    return [next(counts) if uplink.latency > 0 else 0.0 for uplink, _ in loads]


def _latency(
    kind: CollectiveKind,
    counts: Sequence[float],
    loads: Sequence[tuple[Uplink, Load]],
    fits: Sequence[LinkFit],
) -> tuple[float, float]:
    """Seconds of all hops that wait for one another, and of those that bytes hide on a torus.

    Of a permute the one longest hop counts.
    """
    waiting, filling = [0.0], [0.0]
    for n, (uplink, carried), fit in zip(counts, loads, fits, strict=True):
        if carried.hops is None:
            waiting.append(n * (fit.latency * uplink.latency + fit.step))
        else:
            waiting.append(carried.hops * fit.step)
            filling.append(carried.hops * fit.latency * uplink.latency)
    total = max if kind == "permute" else sum
    return total(waiting), total(filling)


def _least(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> float:
    """Seconds per byte below which no algorithm gets: what the others lack, over each uplink.

    Where switches can add, each byte of an all-reduce has to pass only once, as in a broadcast.
    """
    per_byte = []
    for uplink, carried in _loads(kind, groups, cluster, "hierarchical"):
        if kind == "all-reduce" and _adds(uplink, cluster):
            carried = load("broadcast", groups, uplink)
        share = carried.share if carried.least is None else carried.least
        per_byte.append(share / uplink.bandwidth)
    return max(per_byte)


def _adds(uplink: Uplink, cluster: Cluster) -> bool:
    """Whether the switch at the end of an uplink can add up what passes through it."""
    if uplink.link == "network":
        return cluster.fabric is not None and cluster.fabric.reduction
    return uplink.innermost and cluster.switch_reduction


def _bottleneck(route: _Route, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`, or that latency is more than that."""
    uplink, carried = route.uplink, route.load
    each = format_size(bytes * carried.share / carried.groups)
    groups = f"{carried.groups} groups x " if carried.groups > 1 else ""
    words = f"{uplink.words}: {groups}{each} over {format_rate(uplink.bandwidth)}"
    if uplink.passes > 1:
        words += ", through host memory"
    waiting = max(route.latency, route.filling)
    return f"latency, then {words}" if waiting > route.per_byte * bytes else words


def _measured(
    kind: CollectiveKind, bytes: Number, groups: np.ndarray, cluster: Cluster, profile: Profile
) -> CollectiveCost:
    """The line that was measured for the most similar number of ranks and groups."""
    count, ranks = groups.shape
    fits = [fit for fit in profile.collectives if fit.kind == kind]
    if not fits:
        known = ", ".join(dict.fromkeys(fit.kind for fit in profile.collectives))
        raise InputError(
            f"profile {profile.name} has no {kind}; it has {known}; run `scaling calibrate`"
        )
    fit = min(fits, key=lambda f: (abs(log(f.ranks / ranks)), abs(log(f.groups / count))))
    bound = _measured_bound(kind, bytes, groups, cluster, fit)
    words = f"{fit.groups} x {fit.ranks} devices: {format_rate(fit.bandwidth)} as measured"
    time = np.maximum(fitted_time(fit, bytes), bound)
    return CollectiveCost(_number(time), bound, "node", words, "measured", evidence=fit.evidence)


def fitted_time(fit: CollectiveFit, bytes: Number) -> Number:
    """Seconds of one call by a fit alone."""
    if fit.cache_bandwidth is None:
        return fit.alpha + bytes / fit.bandwidth
    near = np.minimum(bytes, fit.cache)
    return fit.alpha + near / fit.cache_bandwidth + (bytes - near) / fit.bandwidth


def _measured_bound(
    kind: CollectiveKind, bytes: Number, groups: np.ndarray, cluster: Cluster, fit: CollectiveFit
) -> Number:
    """From the links, or without alpha where the links have no figures of their own."""
    if cluster.virtual_devices:
        return bytes / max(fit.bandwidth, fit.cache_bandwidth or 0.0)
    return bytes * _least(kind, groups, cluster)


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
    return groups.astype(int)


def _number(time: np.ndarray) -> Number:
    return time if np.ndim(time) else float(time)
