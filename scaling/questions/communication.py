"""The time of one collective over mesh axes: the engine's, and the guide's rule beside it.

    switches   all-gather, reduce-scatter  V (U-1)/(U W)     all-reduce  twice that
               all-to-all                  V s (U-1)/(U W)   of the V bytes that one device sends
    torus      all-gather, reduce-scatter  V/(L W) around rings, V (N-1)/(N L W) along lines
               all-to-all                  V X/(4 l W)       X chips along the longest dimension

U units (chips, nodes) have W bytes/s each, shared by g groups; s members of a group are in one
unit; L links of a chip, l of them along one dimension. Where neither holds, because groups lie
unevenly or over links between pairs, the share of the call's bytes on the busiest links is counted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from scaling.collectives.algorithms.base import rounds
from scaling.collectives.candidates import Candidate
from scaling.collectives.cost import collective_time
from scaling.collectives.torus import spanned_dims
from scaling.meshes.cluster import Cluster
from scaling.meshes.placement import devices_of, groups_on
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.notation import ArraySpec
from scaling.questions.resharding import Step
from scaling.questions.sharding import Setting

SAME = 1e-6  # relative: the guide's rule and the engine agree


@dataclass(frozen=True, eq=False)
class Place:
    """A mesh on a cluster."""

    cluster: Cluster
    fitted: Profile
    ideal: Profile
    by_rule: bool = False  # what binds is that of the textbook's times, not of the fitted ones


def groups_of(step: Step, setting: Setting, place: Place) -> np.ndarray:
    """Device ids [groups, members] that a step runs in; of a permute (source, target) pairs."""
    if step.kind != "permute":
        return groups_on(setting.mesh, step.axes, place.cluster)
    holds, wants = (_parts_held(array, step, setting) for array in (step.before, step.after))
    taker = np.empty(setting.devices, int)
    taker[wants] = np.arange(setting.devices)
    devices = devices_of(setting.mesh, place.cluster)
    return devices[np.stack([np.arange(setting.devices), taker[holds]], axis=1)]


def _parts_held(array: ArraySpec, step: Step, setting: Setting) -> np.ndarray:
    """Number of the part that each device holds, and of its copy; int [devices], each once."""
    places = np.unravel_index(np.arange(setting.devices), tuple(setting.mesh.values()))
    at = dict(zip(setting.mesh, places, strict=True))
    copies = [axis for axis in setting.mesh if axis not in step.before.axes]
    number = np.zeros(setting.devices, int)
    for axis in (*array.axes, *copies):
        number = number * setting.mesh[axis] + at[axis]
    return number


def step_time(step: Step, setting: Setting, place: Place) -> Answer:
    """Return the seconds of one step, with the rule that gives the textbook's."""
    if step.kind == "slice":
        return Answer(str(step), 0.0, "s", ideal=0.0, fitted=0.0, binds="nothing moves")
    groups, kind = groups_of(step, setting, place), step.kind
    fitted, ideal = (
        collective_time(kind, float(step.bytes), groups, place.cluster, profile)
        for profile in (place.fitted, place.ideal)
    )
    time, binds = float(fitted.time), (ideal if place.by_rule else fitted).bottleneck
    V = Input("V", step.bytes, "bytes", _meaning(kind))
    if not ideal.candidates:  # groups of one, or a machine that was measured
        return by_formula(str(step), "s", "T", (Input("T", float(ideal.time), "s"),), time)
    best = min(ideal.candidates, key=lambda each: float(each.seconds(step.bytes)))
    for rule, inputs in (_rule(kind, groups, best), _counted(best)):
        found = by_formula(str(step), "s", rule, (V, *inputs), time, binds=binds)
        if best.torus_latency:
            found = _with_hops(found, V, best.torus_latency)
        if math.isclose(float(found.ideal or 0.0), float(ideal.time), rel_tol=SAME):
            break
    return found


def _with_hops(rule: Answer, V: Input, latency: float) -> Answer:
    """max(hops, rule), and the bytes below which the hops bind."""
    H = Input("H", latency, "s", "hops, one after another")
    T = Input("T", float(rule.ideal or 0.0), "s", "by the bytes alone")
    least = by_formula("bytes of the call below which hops bind", "bytes", "V * H / T", (V, H, T))
    formula, inputs = f"max(H, {rule.formula})", (*rule.inputs, H)
    more = {"binds": rule.binds, "parts": (least,)}
    return by_formula(rule.name, "s", formula, inputs, rule.fitted, **more)


def step_bytes(step: Step, setting: Setting) -> Answer:
    """Return the bytes that a device receives in a step, at the least."""
    members = setting.ways(step.axes)
    if step.kind == "slice":
        return Answer(str(step), 0, "bytes", ideal=0, binds="nothing moves")
    V = Input("V", step.bytes, "bytes", _meaning(step.kind))
    if step.kind == "permute":
        return by_formula(str(step), "bytes", "V", (V,))
    N = Input("N", members, "devices", f"along {' x '.join(step.axes)}")
    twice = "2 * " * (step.kind == "all-reduce")
    return by_formula(str(step), "bytes", f"{twice}V * (N - 1) / N", (V, N))


def asked(setting: Setting, place: Place | None) -> Callable[[Step], Answer]:
    """Return what answers a step, each step once: with its time, or without a place its bytes."""
    if place is None:
        return lambda step: step_bytes(step, setting)
    return cache(lambda step: step_time(step, setting, place))


def total(name: str, unit: str, parts: Sequence[Answer], **more: Any) -> Answer:
    """Return the sum of answers, as T1 + T2; one answer alone stands for itself."""
    moving = [part for part in parts if part.formula]
    if len(moving) == 1:
        free = tuple(part for part in parts if not part.formula)
        return replace(moving[0], name=name, parts=(*moving[0].parts, *free), **more)
    if not moving:
        return Answer(name, 0, unit, ideal=0, parts=tuple(parts), binds="nothing moves", **more)
    inputs = tuple(
        Input(f"T{number}", float(part.ideal or 0), unit, part.name)
        for number, part in enumerate(moving, 1)
    )
    fitted = None
    if moving[0].fitted is not None:
        fitted = sum(float(part.fitted or 0) for part in moving)
    slowest = max(moving, key=float)
    binds = f"{slowest.name}: {slowest.binds}" if slowest.binds else ""
    more = {"parts": tuple(parts), "binds": binds, **more}
    return by_formula(name, unit, " + ".join(i.symbol for i in inputs), inputs, fitted, **more)


def _meaning(kind: CollectiveKind) -> str:
    """What V counts."""
    if kind in ("all-to-all", "permute"):
        return "that one device sends"
    return "gathered on each device" if kind == "all-gather" else "on each device before"


def _rule(
    kind: CollectiveKind, groups: np.ndarray, best: Candidate
) -> tuple[str, tuple[Input, ...]]:
    """The guide's rule for the level that binds, and its inputs but V."""
    grid, level, shared = best.busiest.level.grid, best.busiest.level, best.busiest.load.groups
    W = Input("W", level.bandwidth, "bytes/s", level.name)
    if grid is not None:
        return _torus_rule(kind, groups, best, W)
    if kind not in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all"):
        return _counted(best)
    region, units = level.labels.region[groups[0]], level.labels.unit[groups[0]]
    counts = np.unique(units[region == region[0]], return_counts=True)[1]
    U = Input("U", len(counts), "units", "of a group that these links join")
    twice, inputs = "2 * " * (kind == "all-reduce"), [U, W]
    if shared > 1:
        twice, inputs = f"{twice}g * ", [Input("g", shared, "groups", "share the links"), *inputs]
    if kind == "all-to-all" and counts[0] > 1:
        twice += "s * "
        inputs = [Input("s", int(counts[0]), "devices", "of a group in one unit"), *inputs]
    return f"{twice}V * (U - 1) / (U * W)", tuple(inputs)


def _torus_rule(
    kind: CollectiveKind, groups: np.ndarray, best: Candidate, W: Input
) -> tuple[str, tuple[Input, ...]]:
    assert best.busiest.level.grid is not None
    if kind not in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all"):
        return _counted(best)
    dims = spanned_dims(groups, best.busiest.level.grid)
    if kind == "all-to-all":
        longest = max(dims, key=lambda dim: dim.count / dim.links)
        X = Input("X", longest.count, "chips", "along the longest dimension")
        links = Input("l", longest.links, "links", "of a chip along it")
        return "V * X / (4 * l * W)", (X, links, W)
    L = Input("L", sum(dim.links for dim in dims), "links", "of a chip, one way, for its group")
    twice = "2 * " * (rounds(kind) - 1)
    if any(dim.ring for dim in dims):
        return f"{twice}V / (L * W)", (L, W)
    N = Input("N", math.prod(dim.count for dim in dims), "chips", "in lines, no wraparound links")
    return f"{twice}V * (N - 1) / (N * L * W)", (N, L, W)


def _counted(best: Candidate) -> tuple[str, tuple[Input, ...]]:
    """Bytes as counted on the busiest links."""
    share = Input("r", best.busiest.load.share, "", "of V on the busiest links")
    return "r * V / W", (
        share,
        Input("W", best.busiest.level.bandwidth, "bytes/s", best.busiest.level.name),
    )
