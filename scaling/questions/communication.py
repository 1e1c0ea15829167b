"""The time of one collective over mesh axes: the engine's, and the textbook's formula beside it.

V bytes pass the links that bind, as `scaling.collectives.explain` has them in letters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.collectives.explain import link_of_candidate, received_formula, time_formula
from scaling.meshes.cluster import Cluster
from scaling.meshes.placement import devices_of, groups_on
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.notation import ArraySpec
from scaling.questions.resharding import Step
from scaling.questions.sharding import ShapeContext


@dataclass(frozen=True, eq=False)
class MeshOnCluster:
    """A mesh on a cluster."""

    cluster: Cluster
    fitted: Profile
    ideal: Profile
    by_rule: bool = False  # the textbook's times order what there is to choose, and say what binds


def by_rule(place: MeshOnCluster | None) -> bool:
    """True where the textbook's times count; without a place there are no others."""
    return place is not None and place.by_rule


def groups_of(step: Step, setting: ShapeContext, place: MeshOnCluster) -> np.ndarray:
    """Device ids [groups, members] that a step runs in; of a permute (source, target) pairs."""
    if step.kind != "permute":
        return groups_on(setting.mesh, step.axes, place.cluster)
    holds, wants = (_parts_held(array, step, setting) for array in (step.before, step.after))
    taker = np.empty(setting.devices, int)
    taker[wants] = np.arange(setting.devices)
    devices = devices_of(setting.mesh, place.cluster)
    return devices[np.stack([np.arange(setting.devices), taker[holds]], axis=1)]


def _parts_held(array: ArraySpec, step: Step, setting: ShapeContext) -> np.ndarray:
    """Number of the part that each device holds, and of its copy; int [devices], each once."""
    places = np.unravel_index(np.arange(setting.devices), tuple(setting.mesh.values()))
    at = dict(zip(setting.mesh, places, strict=True))
    copies = [axis for axis in setting.mesh if axis not in step.before.axes]
    number = np.zeros(setting.devices, int)
    for axis in (*array.axes, *copies):
        number = number * setting.mesh[axis] + at[axis]
    return number


def step_time(step: Step, setting: ShapeContext, place: MeshOnCluster) -> Answer:
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
    link = link_of_candidate(kind, groups, best)
    formula, inputs = time_formula(kind, link), (V, *link.symbols)
    answer = by_formula(str(step), "s", formula, inputs, time, binds=binds)
    return _with_hops(answer, V, best.torus_latency) if best.torus_latency else answer


def _with_hops(rule: Answer, V: Input, latency: float) -> Answer:
    """max(hops, rule), and the bytes below which the hops bind."""
    H = Input("H", latency, "s", "hops, one after another")
    T = Input("T", float(rule.ideal or 0.0), "s", "by the bytes alone")
    least = by_formula("bytes of the call below which hops bind", "bytes", "V * H / T", (V, H, T))
    formula, inputs = f"max(H, {rule.formula})", (*rule.inputs, H)
    more = {"binds": rule.binds, "parts": (least,)}
    return by_formula(rule.name, "s", formula, inputs, rule.fitted, **more)


def step_bytes(step: Step, setting: ShapeContext) -> Answer:
    """Return the bytes that a device receives in a step, at the least."""
    members = setting.ways(step.axes)
    if step.kind == "slice":
        return Answer(str(step), 0, "bytes", ideal=0, binds="nothing moves")
    V = Input("V", step.bytes, "bytes", _meaning(step.kind))
    formula = received_formula(step.kind)
    N = Input("N", members, "devices", f"along {' x '.join(step.axes)}")
    return by_formula(str(step), "bytes", formula, (V, N) if "N" in formula else (V,))


def asked(setting: ShapeContext, place: MeshOnCluster | None) -> Callable[[Step], Answer]:
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
