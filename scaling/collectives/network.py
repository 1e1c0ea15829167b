"""Calls that were timed on a cluster correct there what the fits of its links say.

    time = T(M)    M  seconds by the fits of the links, with all groups that share them
                   T  seconds as timed: through the points (M, T) of the calls, log over log

Calls of one kind over so many nodes, or of so many ranks inside one, are a curve. Between numbers
of nodes log T is interpolated over log nodes. Above the largest call T / M stays; below the
smallest it holds for the bytes alone, since a large call says nothing of latency. Beyond the most
nodes T / M goes on growing as between the last two numbers of nodes, at most in proportion to the
nodes: a fabric that carries no more in all, however many nodes send. Over fewer nodes than were
timed it shrinks likewise, down to 1. A kind that was not timed takes the geometric mean of those
that were, at the same level.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from scaling.collectives.algorithms import bus_factor
from scaling.collectives.contention import PlacedGroups, place_groups
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.cluster import Cluster, max_nodes
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.units import format_rate, format_size, format_time
from scaling.profiles.profile import Evidence, MeasuredSpan, Profile, TimedCurve
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind, Number

# Half ranges, 90 % quantiles (experiments/published/score_measured.py): of a call like one that was
# timed, and of a kind that takes the factors of others.
LIKE, LENT = 0.13, 0.7
# Times of what the fits say from which a unit is wrong: microseconds for seconds are 1e6, GB/s for
# bytes/s 1e9. Chosen by this project.
IMPLAUSIBLE = 1e5
Model = Callable[[CollectiveKind, np.ndarray, np.ndarray, Cluster], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Correction:
    """What the calls that were timed say of one call."""

    time: Number
    evidence: Evidence  # without a range beyond what was timed
    words: str
    is_beyond: bool  # of more nodes than were timed, or of another kind


def timed_curves(
    calls: Iterable[MeasuredCall], cluster: Cluster, model: Model
) -> tuple[TimedCurve, ...]:
    """The curves of the calls; `model` returns seconds and the lower bounds of calls [sizes].

    Raises:
        InputError: a collective, ranks or nodes that there are not; a call that is faster than the
            links are, or slower than any.
    """
    alike: dict[tuple[CollectiveKind, int, int], dict[float, list[float]]]
    alike = defaultdict(lambda: defaultdict(list))
    for call in calls:
        check_keys([call.collective], COLLECTIVE_KINDS, "measured: collective")
        kind: CollectiveKind = call.collective  # type: ignore[assignment]
        per_node = call.per_node(cluster.devices_per_node)
        nodes = call.ranks // per_node
        _check_place(call, nodes, per_node, cluster)
        seconds = call.seconds
        if seconds is None:
            assert call.bus_bandwidth is not None
            seconds = call.bytes * bus_factor(kind, call.ranks) / call.bus_bandwidth
        alike[kind, nodes, per_node][call.bytes].append(seconds)
    curves = []
    for (kind, nodes, per_node), by_size in sorted(alike.items()):
        first = np.arange(nodes)[:, None] * cluster.devices_per_node
        groups = (first + np.arange(per_node)).reshape(1, -1)
        sizes = np.array(sorted(by_size))
        timed = np.array([np.median(by_size[size]) for size in sizes])
        place = replace(cluster, nodes=nodes)
        spans = place_groups(groups, place).nodes  # hosts of one NVLink domain are one
        modelled, least = model(kind, np.array([1.0, *sizes]), groups, place)
        _check_times(kind, sizes, timed, modelled[1:], least[1:], groups.size, place)
        curves.append(
            TimedCurve(
                *(kind, spans, groups.size // spans, float(modelled[0])),
                modelled=tuple(map(float, modelled[1:])),
                timed=tuple(map(float, np.maximum.accumulate(timed))),
                bytes=(float(sizes[0]), float(sizes[-1])),
            )
        )
    return tuple(curves)


def correction(
    kind: CollectiveKind,
    seconds: Number,
    latency: float,
    placement: PlacedGroups,
    profile: Profile,
) -> Correction | None:
    """What was timed says of a call of so many seconds by the fits; None: nothing.

    It takes `latency` (s) of them without bytes.
    """
    nodes, groups = placement.nodes, placement.groups
    at_level = [c for c in profile.network if (c.nodes > 1) == (nodes > 1)]
    own = [curve for curve in at_level if curve.kind == kind]
    if not at_level:
        return None
    of_node = placement.cluster.devices_per_node * placement.cluster.domain_nodes
    active = groups.size / len(np.unique(groups // of_node))
    reach = nodes if nodes > 1 else groups.shape[1]
    factors: list[np.ndarray] = []
    used: list[TimedCurve] = []
    for name in dict.fromkeys(curve.kind for curve in own or at_level):
        curves = [curve for curve in own or at_level if curve.kind == name]
        if nodes > 1:
            nearest = min(abs(log(curve.per_node / active)) for curve in curves)
            curves = [c for c in curves if abs(log(c.per_node / active)) == nearest]
        factor = _factor(curves, reach, lambda curve: curve.factor(seconds, latency))
        factors.append(np.asarray(factor))
        used += curves
    mean = np.exp(np.mean(np.log(factors), axis=0))
    reaches = sorted({curve.reach for curve in used})
    among = f"{reaches[0]}" if len(reaches) == 1 else f"{reaches[0]} to {reaches[-1]}"
    kinds = " and ".join(sorted({curve.kind for curve in used}))
    words = f"x{float(np.max(mean)):.3g} by {kinds} timed "
    words += f"on {among} nodes" if nodes > 1 else f"among {among} ranks of a node"
    is_beyond = nodes > 1 and not reaches[0] <= nodes <= reaches[-1]
    if is_beyond:
        words += f", {'fewer' if nodes > reaches[-1] else 'more'} than these {nodes}"
    span = MeasuredSpan(
        ranks=(min(c.ranks for c in used), max(c.ranks for c in used)),
        nodes=(min(c.nodes for c in used), max(c.nodes for c in used)),
        bytes=(min(c.bytes[0] for c in used), max(c.bytes[1] for c in used)),
    )
    evidence = Evidence(
        *("calls timed on this cluster", "", "measured"),
        samples=sum(len(curve.timed) for curve in used),
        error_p90=LIKE if own else LENT,
        measured=span,
    )
    return Correction(mean * seconds, evidence, words, is_beyond or not own)


def _factor(
    curves: Sequence[TimedCurve], reach: int, factor: Callable[[TimedCurve], Number]
) -> Number:
    """T / M over so many nodes, or among so many ranks of one node, from that of each curve."""
    curves = sorted(curves, key=lambda curve: curve.reach)
    at = [curve.reach for curve in curves]
    above = int(np.searchsorted(at, reach))
    if 0 < above < len(at):
        low, high = curves[above - 1 : above + 1]
        part = log(reach / low.reach) / log(high.reach / low.reach)
        return factor(low) ** (1 - part) * factor(high) ** part
    ends, growth = (curves[:2] if above == 0 else curves[:-3:-1]), 0.0  # the nearest first
    nearest = ends[0]
    if len(ends) > 1 and nearest.nodes > 1:
        ratio = float(ends[1].factor(np.inf) / nearest.factor(np.inf))
        growth = min(max(log(ratio) / log(ends[1].reach / nearest.reach), 0.0), 1.0)
    farther = factor(nearest) * (reach / nearest.reach) ** growth
    return farther if above else np.maximum(farther, np.minimum(factor(nearest), 1.0))


def _check_place(call: MeasuredCall, nodes: int, per_node: int, cluster: Cluster) -> None:
    """Raise InputError where the cluster cannot have so many ranks."""
    where = f"measured: {call.collective} among {call.ranks} ranks"
    if per_node > cluster.devices_per_node:
        raise InputError(
            f"{where} on {nodes} node(s) is {per_node} on each; a node of {cluster.name} has "
            f"{cluster.devices_per_node}: state nodes, or another cluster"
        )
    if nodes * per_node != call.ranks:
        raise InputError(f"{where} do not fill nodes of {per_node}: state nodes or ranks_per_node")
    most = max_nodes(cluster)
    if most is not None and nodes > most:
        raise InputError(f"{where} needs {nodes} nodes; {cluster.name} joins at most {most}")


def _check_times(
    kind: CollectiveKind,
    sizes: np.ndarray,
    timed: np.ndarray,
    modelled: np.ndarray,
    least: np.ndarray,
    ranks: int,
    cluster: Cluster,
) -> None:
    """Raise InputError for times that the links do not allow, and for those of a wrong unit."""
    for size, seconds, model, bound in zip(sizes, timed, modelled, least, strict=True):
        what = (
            f"measured: {kind} of {format_size(size)} among {ranks} ranks on {cluster.nodes} "
            f"node(s) in {format_time(seconds)}, bus bandwidth "
            f"{format_rate(size * bus_factor(kind, ranks) / seconds)},"
        )
        if seconds < bound:
            raise InputError(
                f"{what} is faster than the links of {cluster.name}, which need "
                f"{format_time(bound)}: check bytes and seconds, the ranks of each node, and the "
                "bandwidths of the cluster (scaling cluster show)"
            )
        if seconds > IMPLAUSIBLE * model:
            raise InputError(
                f"{what} is {seconds / model:.0e} times as slow as modelled: state seconds in s, "
                "bus_bandwidth in bytes/s"
            )
