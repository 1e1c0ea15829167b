"""From one sharding of an array to another: the collectives that it takes.

    [I_X] -> [I]      all-gather        [I] {U_X} -> [I]      all-reduce
    [I_X,J] -> [I,J_X]  all-to-all      [I] {U_X} -> [I_X]    reduce-scatter
    [I] -> [I_X]      a slice, free     [I_XY] -> [I_YX]      permute: whole shards change places

Steps that leave less to do come first: slices, sums into shards, exchanges, sums, gathers. An axis
leaves a dimension from its innermost end, and enters there: otherwise the parts would not be
consecutive. Collectives of several dimensions at once are one, as in the guide's
AllGather_XY([I_X,J_Y]) -> [I,J]; `together=False` does one dimension after another.

The time of a step is the engine's, with the textbook's formula beside it: V bytes pass the links
that bind, as `scaling.collectives.explain` has them in letters.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.collectives.explain import link_of_candidate, received_formula, time_formula
from scaling.meshes.errors import InputError
from scaling.meshes.placement import devices_of, groups_on
from scaling.program.ir import CollectiveKind
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.notation import ArraySpec, format_array
from scaling.questions.sharding import (
    MeshOnCluster,
    ShapeContext,
    coordinates,
    device_bytes,
    index,
)

COUNTED = {  # what V counts of a collective, where it is not what a device has before
    "all-gather": "gathered on each device",
    "all-to-all": "that one device sends",
    "permute": "that one device sends",
}
StepKind = CollectiveKind | Literal["slice"]


@dataclass(frozen=True)
class ReshardingStep:
    """One collective over some axes, or a slice, which is free."""

    kind: StepKind
    axes: tuple[str, ...]
    bytes: float  # of the call as nccl-tests counts them; of a slice what is kept
    before: ArraySpec
    after: ArraySpec

    def __str__(self) -> str:
        """Return `AllGather_X(A[I_X,J]) -> A[I,J]`, as the guide writes it."""
        name = "".join(word.capitalize() for word in self.kind.split("-"))
        axes = "".join(self.axes) if all(len(a) == 1 for a in self.axes) else ",".join(self.axes)
        return f"{name}_{axes}({format_array(self.before)}) -> {format_array(self.after)}"


def steps(
    source: ArraySpec, target: ArraySpec, setting: ShapeContext, together: bool = True
) -> tuple[ReshardingStep, ...]:
    """Return the steps from one sharding to another of the same dimensions; none: they are equal.

    Raises:
        InputError: other dimensions, or a target that is unreduced where the source is not.
    """
    if source.names != target.names:
        raise InputError(
            f"{format_array(source)} -> {format_array(target)}: a resharding keeps the dimensions "
            "and their order; write A[I_X,J] -> A[I,J]"
        )
    if extra := [axis for axis in target.unreduced if axis not in source.unreduced]:
        raise InputError(
            f"{format_array(target)} is unreduced over {', '.join(extra)}, "
            f"{format_array(source)} is not: no collective makes terms of a sum"
        )
    taken: list[ReshardingStep] = []
    now = source
    while (now.dims, set(now.unreduced)) != (target.dims, set(target.unreduced)):
        able = (move for move in _moves(now, target, setting, together) if move[1])
        kind, over, after = next(able)
        larger = now if kind in ("reduce-scatter", "all-reduce") else after
        axes = tuple(axis for axis in setting.mesh if axis in over)
        taken.append(ReshardingStep(kind, axes, device_bytes(larger, setting), now, after))
        now = after
        assert len(taken) <= 2 * len(setting.mesh) ** 2, "every step brings an axis to its place"
    return tuple(taken)


Move = tuple[
    StepKind, Sequence[str], ArraySpec
]  # over which axes, none: it cannot be; what is made


def _moves(
    now: ArraySpec, target: ArraySpec, setting: ShapeContext, together: bool
) -> Iterator[Move]:
    """Steps of every kind, those first that leave less to do."""
    # Every axis that nothing holds enters the dimensions that are ready for it:
    held = (*now.axes, *now.unreduced)
    after, axes = _entered(now, target, lambda axis: axis not in held)
    yield "slice", axes, after
    after, axes = _entered(now, target, lambda axis: axis in now.unreduced, together)
    yield "reduce-scatter", axes, _summed(after, axes)
    # Equal axes and shards, elsewhere: every device sends its shard to one other.
    pairs = list(zip(now.dims, target.dims, strict=True))
    if (
        not (now.unreduced or target.unreduced)
        and sorted(now.axes) == sorted(target.axes)
        and all(setting.ways(a.axes) == setting.ways(b.axes) for a, b in pairs)
    ):
        yield "permute", [x for a, b in pairs if a != b for x in (*a.axes, *b.axes)], target
    # The innermost axes of one dimension that another wants next move there.
    for give, take in itertools.permutations(range(len(now.dims)), 2):
        leaving, wanted = _leaving(now, target, give), _wanted(now, target, take)
        for first in range(len(leaving)):
            moved = leaving[first:]
            if wanted[: len(moved)] == moved:
                dims = list(now.dims)
                kept = dims[give].axes[: len(dims[give].axes) - len(moved)]
                dims[give] = replace(dims[give], axes=kept)
                dims[take] = replace(dims[take], axes=dims[take].axes + moved)
                yield "all-to-all", moved, replace(now, dims=tuple(dims))
    axes = [axis for axis in now.unreduced if axis not in (*target.unreduced, *target.axes)]
    yield "all-reduce", axes, _summed(now, axes)
    yield _all_gather(now, target, together)


def _summed(array: ArraySpec, axes: Sequence[str]) -> ArraySpec:
    left = tuple(axis for axis in array.unreduced if axis not in axes)
    return replace(array, unreduced=left)


def _all_gather(now: ArraySpec, target: ArraySpec, together: bool) -> Move:
    """The axes that have to leave their dimensions; those that another one waits for stay once."""
    leaving = [_leaving(now, target, dim) for dim, _ in enumerate(now.dims)]
    for_good = [tuple(a for a in axes if a not in target.axes) for axes in leaving]
    chosen = for_good if any(for_good) else leaving
    dims = list(now.dims)
    axes: list[str] = []
    for number, dim in reversed(list(enumerate(now.dims))):  # as XLA does one after another
        if chosen[number] and (together or not axes):
            kept = dim.axes[: min(map(dim.axes.index, chosen[number]))]
            axes += dim.axes[len(kept) :]
            dims[number] = replace(dim, axes=kept)
            if chosen is leaving:
                break
    return "all-gather", axes, replace(now, dims=tuple(dims))


def _entered(
    now: ArraySpec, target: ArraySpec, enters: Callable[[str], bool], together: bool = True
) -> tuple[ArraySpec, list[str]]:
    """The array with the axes that enter next in each dimension, and these axes."""
    dims = list(now.dims)
    entered: list[str] = []
    for number, dim in enumerate(now.dims):
        new = tuple(takewhile(enters, _wanted(now, target, number)))
        if new and (together or not entered):
            dims[number] = replace(dim, axes=dim.axes + new)
            entered += new
    return replace(now, dims=tuple(dims)), entered


def _leaving(now: ArraySpec, target: ArraySpec, dim: int) -> tuple[str, ...]:
    """Axes that have to leave a dimension: those behind what it shares with the target."""
    here, there = now.dims[dim].axes, target.dims[dim].axes
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(here, there, strict=False))))
    return here[shared:]


def _wanted(now: ArraySpec, target: ArraySpec, dim: int) -> tuple[str, ...]:
    """Axes that a dimension wants next; none while others have to leave it."""
    if _leaving(now, target, dim):
        return ()
    return target.dims[dim].axes[len(now.dims[dim].axes) :]


# Times


def step_answer(step: ReshardingStep, setting: ShapeContext) -> Answer:
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


def _groups_of(step: ReshardingStep, setting: ShapeContext, place: MeshOnCluster) -> np.ndarray:
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
