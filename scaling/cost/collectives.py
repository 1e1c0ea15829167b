"""Seconds of one collective: the busiest uplink of any level, and the steps of a ring.

    time = alpha + steps x latency + max over levels of  bytes over the uplink / its bandwidth

All groups that run at once share the uplinks (`scaling.cost.traffic` counts the bytes). A ring in
each level has D - 1 steps for D neighbours, and twice that for an all-reduce. Inside a node whose
collectives were measured (`scaling calibrate`), the measured line is taken instead.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from meshes.cluster import Cluster, Level, level_nodes
from meshes.errors import InputError
from meshes.units import format_rate, format_size
from scaling.cost.profile import CollectiveFit, Evidence, LinkFit, Profile, link_fit, protocols
from scaling.cost.traffic import Load, Uplink, load
from scaling.cost.uplinks import uplinks
from scaling.program import COLLECTIVE_KINDS, CollectiveKind, Number


@dataclass(frozen=True)
class CollectiveCost:
    """Seconds of one call, and why."""

    time: Number
    lower_bound: Number  # no latency, every link at its full bandwidth
    level: Level  # the highest that the groups cross; "chip": nobody else takes part
    bottleneck: str  # in words, at the largest of the sizes
    algorithm: str  # "ring", "measured", or "none" for a group of one
    protocol: str = ""
    evidence: Evidence | None = None  # of the figure that most of the time comes from


@dataclass(frozen=True)
class _Route:
    """A collective under one protocol: seconds = latency + per_byte x bytes."""

    protocol: str
    latency: float
    per_byte: float
    uplink: Uplink
    load: Load
    evidence: Evidence


def collective_time(
    kind: CollectiveKind,
    bytes: Number,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
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

    Raises:
        InputError: device ids that the cluster lacks, or a profile without a fitting figure.
    """
    groups = _checked(kind, groups, cluster)
    level = crossed_level(groups, cluster)
    if level == "chip":
        return CollectiveCost(0.0 * bytes, 0.0 * bytes, level, "nobody else takes part", "none")
    if level == "node" and profile.collectives:
        return _measured(kind, bytes, groups, cluster, profile)
    loads = _loads(kind, groups, cluster)
    routes = [_route(kind, loads, profile, protocol) for protocol in protocols(profile)]
    usable = [route for route in routes if route is not None]
    if not usable:
        links = ", ".join(dict.fromkeys(uplink.link for uplink, _ in loads))
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    time = np.min(np.array([r.latency + r.per_byte * bytes for r in usable]), axis=0)
    largest = float(np.max(bytes))
    best = min(usable, key=lambda r: r.latency + r.per_byte * largest)
    words, bound = _bottleneck(best, largest), _lower_bound(bytes, loads)
    return CollectiveCost(_number(time), bound, level, words, "ring", best.protocol, best.evidence)


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


def _loads(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> list[tuple[Uplink, Load]]:
    """The uplinks that carry anything."""
    loads = [(uplink, load(kind, groups, uplink)) for uplink in uplinks(cluster)]
    return [(uplink, carried) for uplink, carried in loads if carried.share > 0]


def _route(
    kind: CollectiveKind, loads: list[tuple[Uplink, Load]], profile: Profile, protocol: str
) -> _Route | None:
    """The cost under one protocol, or None where the profile lacks it."""
    fits = [link_fit(profile, kind, uplink.link, protocol) for uplink, _ in loads]
    known = [fit for fit in fits if fit is not None]
    if len(known) < len(fits):
        return None
    per_byte = [
        carried.share * uplink.passes / (uplink.bandwidth * fit.efficiency)
        for (uplink, carried), fit in zip(loads, known, strict=True)
    ]
    busiest = int(
        np.argmax(np.round(np.array(per_byte) / max(per_byte), 9))
    )  # of equals, the first
    latency = max(fit.alpha for fit in known) + _ring_latency(kind, loads, known)
    return _Route(protocol, latency, per_byte[busiest], *loads[busiest], known[busiest].evidence)


def _ring_latency(
    kind: CollectiveKind, loads: list[tuple[Uplink, Load]], fits: list[LinkFit]
) -> float:
    """Seconds of all steps: a ring in every level, or the one longest hop of a permute."""
    hops = [
        (carried.neighbours - 1) * (fit.latency * uplink.latency + fit.step)
        for (uplink, carried), fit in zip(loads, fits, strict=True)
        if uplink.latency > 0
    ]
    if kind == "permute":
        return max(hops, default=0.0)
    return (2 if kind == "all-reduce" else 1) * sum(hops)


def _lower_bound(bytes: Number, loads: list[tuple[Uplink, Load]]) -> Number:
    return bytes * max(carried.share / uplink.bandwidth for uplink, carried in loads)


def _bottleneck(route: _Route, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`, or that latency is more than that."""
    uplink, carried = route.uplink, route.load
    each = format_size(bytes * carried.share / carried.groups)
    groups = f"{carried.groups} groups x " if carried.groups > 1 else ""
    words = f"{uplink.words}: {groups}{each} over {format_rate(uplink.bandwidth)}"
    if uplink.passes > 1:
        words += ", through host memory"
    return f"latency, then {words}" if route.latency > route.per_byte * bytes else words


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
    return _lower_bound(bytes, _loads(kind, groups, cluster))


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
    return groups


def _number(time: np.ndarray) -> Number:
    return time if np.ndim(time) else float(time)
