"""Seconds of one collective: the busiest links of any level, and the hops of its algorithm.

    time = alpha + hops x latency + max over levels of  bytes over its links / their bandwidth
           + what medium sizes take more, where neither decides (`collectives.candidates`)

Each algorithm puts its own bytes and hops on the levels (`collectives.algorithms`); all groups
that run at once share the links (`collectives.contention`). The fastest of the candidates is taken
(`collectives.candidates`). Inside a node whose collectives were measured (`scaling calibrate`),
the measured line is taken instead (`collectives.measured`); between hosts that share this machine's
cores, on top of the network: the same cores copy and send.

The range of a call's time is that of the links it uses:

    half range = latency's share x latency_p90 + bytes' share x error_p90,  then x growth

Each share counts with the widest range among the levels that the call loads, so that no call
between nodes is surer than the network is. Beyond the ranks, nodes or bytes that were measured the
range grows with every doubling, and never shrinks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np

from scaling.collectives.algorithms import REDUCTIONS
from scaling.collectives.candidates import Candidate, candidates
from scaling.collectives.contention import PlacedGroups, place_groups
from scaling.collectives.explain import bottleneck_words
from scaling.collectives.measured import measured_line
from scaling.collectives.network import correction, timed_curves
from scaling.collectives.shared_links import count, wire_times
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.cluster import Cluster, Level
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_rate
from scaling.profiles.profile import Evidence, MeasuredSpan, Profile
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind, Number, as_float

# Growth of 1 + the half range with each doubling beyond what was measured. Figures that were fitted
# on one and two nodes only are off by a factor of 1.33 on 248 H200 nodes, seven doublings away, and
# by 1.0 to 1.5 on eight systems of 3 to 12 nodes, as on two (experiments/published, "two_nodes").
GROWTH = 1.05


@dataclass(frozen=True)
class CollectiveCost:
    """Seconds of one call, and why."""

    time: Number
    lower_bound: Number  # no latency, every link at its full bandwidth
    level: Level  # the highest that the groups cross; "chip": every group has one member
    bottleneck: str  # a phrase, at the largest of the sizes
    algorithm: str  # one of ALGORITHMS, "measured", or "none" for a group of one
    evidence: Evidence | None = None  # of the figure that most of the time comes from, with the
    # range of this very call at the largest of the sizes
    candidates: tuple[Candidate, ...] = ()  # all that could run, with the one taken
    busy: np.ndarray | None = None  # share of its time that each pool of links is busy: float
    # [pools, ...] (`scaling.collectives.shared_links`); None: as much as the call lasts
    extrapolated: bool = False  # beyond the ranks, nodes or bytes that were measured, or by a line
    # of other ranks or of another kind

    @property
    def chosen(self) -> Candidate | None:
        """The candidate of the algorithm; None for a group of one and for a measured line."""
        return next((c for c in self.candidates if c.algorithm == self.algorithm), None)


def with_timed_calls(profile: Profile, cluster: Cluster, calls: Iterable[MeasuredCall]) -> Profile:
    """The profile with what was timed on the cluster (`scaling.collectives.network`)."""
    if not calls:
        return profile
    fits = replace(profile, network=())

    def model(kind: CollectiveKind, sizes: np.ndarray, groups: np.ndarray, at: Cluster) -> Any:
        cost = collective_time(kind, sizes, groups, at, fits)
        return cost.time, 0 * sizes if at.virtual_devices else cost.lower_bound

    return replace(profile, network=timed_curves(calls, cluster, model))


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
        groups: device ids, int array [groups, members]. In a permute rows of two are (source,
            target) pairs; in longer rows each member sends to the next, the last to the first.
        cluster: where the devices are.
        profile: what its links achieve.
        algorithm: one of ALGORITHMS, or "auto": all that can run.
        skew: of an all-to-all, bytes that the busiest receiver of each group gets over the mean.
            Every message is priced as large as the largest: an upper bound. `lower_bound` is that
            of the even all-to-all.

    Raises:
        InputError: device ids that the cluster lacks, an algorithm that cannot run there, a
            profile without a fitting figure, or a skew that there cannot be.
    """
    cost = _modelled(kind, bytes, groups, cluster, profile, algorithm, skew)
    if not profile.network or cost.level == "chip":
        return cost
    placement = place_groups(_checked(kind, groups, cluster), cluster)
    latency = min((float(each.seconds(0.0)) for each in cost.candidates), default=0.0)
    found = correction(kind, cost.time, latency, placement, profile)
    if found is None:
        return cost
    largest, ranks = float(np.max(bytes)), placement.ranks
    beyond = doublings(found.evidence.measured, largest, ranks, placement.nodes)
    half = (1 + (found.evidence.error_p90 or 0.0)) * GROWTH**beyond - 1
    return replace(
        cost,
        time=as_float(np.maximum(found.time, cost.lower_bound)),
        bottleneck=f"{cost.bottleneck}, {found.words}",
        evidence=replace(found.evidence, error_p90=half),
        candidates=(),
        extrapolated=found.is_beyond,
    )


def _modelled(
    kind: CollectiveKind,
    bytes: Number,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    algorithm: str,
    skew: float,
) -> CollectiveCost:
    """The price by the fits of the links, or by the lines that `scaling calibrate` measured."""
    groups = _checked(kind, groups, cluster)
    if skew != 1:
        check_skew(kind, skew, groups.shape[1])
    placement = place_groups(groups, cluster)
    level = placement.crossed_level
    if level == "chip":
        return CollectiveCost(0.0 * bytes, 0.0 * bytes, level, "nobody else takes part", "none")
    has_lines = profile.collectives and algorithm == "auto"
    if level == "node" and has_lines:
        return _measured(kind, bytes, placement, profile, skew)
    usable = candidates(kind, placement, profile, algorithm)
    largest = float(np.max(bytes))
    every = np.array([each.seconds(skew * bytes) for each in usable])
    time = np.min(every, axis=0)
    best = min(usable, key=lambda each: float(each.seconds(skew * largest)))
    if has_lines and cluster.virtual_devices:
        time = time + measured_line(kind, groups, profile).seconds(skew * bytes)
    wires = np.array([wire_times(each, placement) for each in usable])[np.argmin(every, axis=0)]
    busy = np.moveaxis(wires, -1, 0) * skew * bytes / np.where(np.greater(time, 0), time, 1.0)
    evidence, extrapolated = call_evidence(best, skew * largest, groups.shape[1], placement.nodes)
    return CollectiveCost(
        as_float(time),
        bytes * _least_per_byte(kind, placement),
        level,
        bottleneck_words(best, skew * largest),
        best.algorithm,
        evidence,
        usable,
        busy,
        extrapolated,
    )


def collective_figures(
    kind: CollectiveKind, groups: np.ndarray, cluster: Cluster, profile: Profile
) -> np.ndarray | None:
    """The figures of every candidate for `candidates.seconds_of`, and the seconds per byte that
    it keeps each pool of links busy: float [5 + pools, algorithms].

    The least of their seconds is `collective_time(...).time`, for any bytes; None where a measured
    line is taken or added, or calls were timed, else zeros for groups of one.
    """
    placement = place_groups(_checked(kind, groups, cluster), cluster)
    if profile.network:
        return None
    if profile.collectives and (placement.crossed_level == "node" or cluster.virtual_devices):
        return None  # this machine's links have no figures but those lines
    if placement.crossed_level == "chip":
        return np.zeros((5 + count(cluster), 1))
    usable = candidates(kind, placement, profile, "auto")
    return np.array([(*each.figures, *wire_times(each, placement)) for each in usable]).T


def check_skew(kind: CollectiveKind, skew: float, ranks: int) -> None:
    """Raise InputError unless an all-to-all of so many ranks can be skewed like that."""
    if kind != "all-to-all":
        raise InputError(
            f"skew {skew:g} is for all-to-all, where some may receive more than others; "
            f"{kind} gives every member the same: leave it out"
        )
    if not 1 <= skew <= ranks:
        raise InputError(
            f"skew {skew:g}: the busiest of {ranks} members receives from 1 (as much as the "
            f"others) to {ranks} times (everything) the mean; use a skew between them"
        )


def call_evidence(
    candidate: Candidate, bytes: float, ranks: int, nodes: int
) -> tuple[Evidence, bool]:
    """The evidence of one call with the range of its time, and whether it lies beyond the data.

    Figures whose evidence states no range (a datasheet's) stay as they are.
    """
    evidences = [one.figures.evidence for one in candidate.loaded]
    wire = max(candidate.per_byte * bytes, candidate.torus_latency)
    share = candidate.latency / (candidate.latency + wire) if candidate.latency else 0.0
    decides = candidate.waits if candidate.is_late(bytes) else candidate.busiest.figures
    if any(each.error_p90 is None for each in evidences):
        return decides.evidence, False
    late = max(each.latency_p90 or each.error_p90 or 0.0 for each in evidences)
    wide = max(each.error_p90 or 0.0 for each in evidences)
    beyond = max(doublings(each.measured, bytes, ranks, nodes) for each in evidences)
    half = (1 + share * late + (1 - share) * wide) * GROWTH**beyond - 1
    return replace(decides.evidence, error_p90=half), beyond > 0


def doublings(span: MeasuredSpan | None, bytes: float, ranks: int, nodes: int) -> float:
    """Doublings from the nearest measurement: the most of those in ranks, nodes and bytes."""
    if span is None:
        return 0.0
    pairs = ((ranks, span.ranks), (nodes, span.nodes), (max(bytes, 1.0), span.bytes))
    return max(max(0.0, log2(value / most), log2(least / value)) for value, (least, most) in pairs)


def _least_per_byte(kind: CollectiveKind, placement: PlacedGroups) -> float:
    """Seconds per byte that no algorithm gets below: what the others lack, over each level.

    Only a part of a ring that leaves a region passes the links inside it. Where switches can add,
    each byte of an all-reduce has to pass only once, as in a broadcast.
    """
    table = placement.loads(kind)
    loads = table["hierarchical"]
    every = [loads, table["ring"]] if kind in REDUCTIONS else [loads]
    if kind == "all-reduce":
        once = placement.loads("broadcast")["hierarchical"]
        every.append(tuple(b if a[0].can_reduce else a for a, b in zip(loads, once, strict=True)))
    return max(
        min(load.least for _, load in of_level) / of_level[0][0].bandwidth
        for of_level in zip(*every, strict=True)
    )


def _measured(
    kind: CollectiveKind, bytes: Number, placement: PlacedGroups, profile: Profile, skew: float
) -> CollectiveCost:
    """The line that was measured in the node, never below what its links allow."""
    line = measured_line(kind, placement.groups, profile)
    virtual = placement.cluster.virtual_devices  # whose links have no figures of their own
    bound = line.least(bytes) if virtual else bytes * _least_per_byte(kind, placement)
    time = np.maximum(line.seconds(skew * bytes), bound)
    fit = line.fit
    measured = f"{fit.groups} x {fit.ranks} devices: {format_rate(fit.bandwidth)} as measured"
    return CollectiveCost(
        as_float(time),
        bound,
        "node",
        measured + line.note,
        "measured",
        evidence=fit.evidence,
        extrapolated=bool(line.note),
    )


def _checked(kind: CollectiveKind, groups: np.ndarray, cluster: Cluster) -> np.ndarray:
    """The groups as an int array of devices that exist."""
    if kind not in COLLECTIVE_KINDS:
        raise InputError(f"{kind!r} is no collective; there are {', '.join(COLLECTIVE_KINDS)}")
    groups = np.asarray(groups)
    if groups.ndim != 2 or groups.size == 0 or groups.dtype.kind not in "iu":
        raise InputError(f"groups must be integers [groups, members], got {groups.shape}")
    if groups.min() < 0 or groups.max() >= cluster.devices:
        raise InputError(
            f"groups name device {int(groups.max())}, but {cluster.name} has {cluster.devices} "
            f"({cluster.nodes} nodes x {cluster.devices_per_node}), counted from 0"
        )
    return groups.astype(int, copy=False)
