"""The time of one collective over mesh axes: the engine's, and the textbook's formula beside it.

V bytes pass the links that bind, as `scaling.collectives.explain` has them in letters.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.collectives.explain import link_of_candidate, received_formula, time_formula
from scaling.meshes.placement import devices_of, groups_on
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.resharding import Step
from scaling.questions.sharding import MeshOnCluster, ShapeContext, coordinates, index

COUNTED = {  # what V counts of a collective, where it is not what a device has before
    "all-gather": "gathered on each device",
    "all-to-all": "that one device sends",
    "permute": "that one device sends",
}


def step_answer(step: Step, setting: ShapeContext) -> Answer:
    """Return the seconds of one step, with the rule that gives the textbook's.

    Without a place the bytes that a device receives at the least.
    """
    name, place = str(step), setting.place
    if step.kind == "slice":
        free = Answer(name, 0, "bytes", ideal=0, binds="nothing moves")
        return free if place is None else replace(free, answer=0.0, unit="s", ideal=0.0, fitted=0.0)
    V = Input("V", step.bytes, "bytes", COUNTED.get(step.kind, "on each device before"))
    if place is None:
        N = Input("N", setting.ways(step.axes), "devices", f"along {' x '.join(step.axes)}")
        return by_formula(name, "bytes", received_formula(step.kind), (V, N))
    groups, kind = _groups_of(step, setting, place), step.kind
    fitted, ideal = (
        collective_time(kind, float(step.bytes), groups, place.cluster, profile)
        for profile in (place.fitted, place.ideal)
    )
    time, binds = float(fitted.time), (ideal if place.by_rule else fitted).bottleneck
    if not ideal.candidates:  # groups of one, or a machine that was measured
        return by_formula(name, "s", "T", (Input("T", float(ideal.time), "s"),), time)
    best = min(ideal.candidates, key=lambda each: float(each.seconds(step.bytes)))
    link = link_of_candidate(kind, groups, best)
    formula, inputs = time_formula(kind, link), (V, *link.symbols)
    rule = by_formula(name, "s", formula, inputs, time, binds=binds)
    if not best.torus_latency:
        return rule
    H = Input("H", best.torus_latency, "s", "hops, one after another")
    T = Input("T", float(rule.ideal or 0.0), "s", "by the bytes alone")
    least = by_formula("bytes of the call below which hops bind", "bytes", "V * H / T", (V, H, T))
    more: dict[str, Any] = {"binds": binds, "parts": (least,)}
    return by_formula(name, "s", f"max(H, {formula})", (*inputs, H), time, **more)


def _groups_of(step: Step, setting: ShapeContext, place: MeshOnCluster) -> np.ndarray:
    """Device ids [groups, members] that a step runs in; of a permute (source, target) pairs."""
    if step.kind != "permute":
        return groups_on(setting.mesh, step.axes, place.cluster)
    numbers = np.arange(setting.devices)
    copies = [axis for axis in setting.mesh if axis not in step.before.axes]
    at = coordinates(numbers, setting.mesh)
    holds, wants = (  # number of the part of each device, and of its copy: int [devices]
        index((*array.axes, *copies), at, setting.mesh) for array in (step.before, step.after)
    )
    taker = np.empty(setting.devices, int)
    taker[wants] = numbers
    return devices_of(setting.mesh, place.cluster)[np.stack([numbers, taker[holds]], axis=1)]


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
