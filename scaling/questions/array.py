"""Sharded arrays, asked: what devices hold of one, and what it takes to shard it otherwise."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scaling.meshes.placement import devices_of
from scaling.program.ir import Kernel
from scaling.questions.answer import Answer, Input, Value, by_formula
from scaling.questions.communication import MeshOnCluster, asked, total
from scaling.questions.notation import (
    ArraySpec,
    Expression,
    format_array,
    free_symbol,
    product_text,
)
from scaling.questions.product import product_of
from scaling.questions.product_time import product_answer, ranked
from scaling.questions.resharding import Step, steps
from scaling.questions.sharding import (
    ShapeContext,
    check_array,
    copies,
    device_bytes,
    number_bytes,
    slices,
    total_bytes,
)
from scaling.simulate.kernels import kernel_time

LAYOUT = "sharding: partitioning notation"
RESHARDING = "sharding: communication primitives"
MOST_DRAWN = 32  # devices whose parts are listed: a screen
HOLDS = "what differs along {} are terms of a sum"


def array_answer(
    expression: Expression,
    setting: ShapeContext,
    place: MeshOnCluster | None = None,
    ideal: bool = False,
) -> Answer:
    """Return the answer about one array, a resharding or a product.

    Args:
        expression: what is asked.
        setting: mesh, sizes and number format.
        place: where the mesh lies; None: only bytes and FLOPs, no times.
        ideal: order what there is to choose by the textbook's times, not by the fitted ones.

    Raises:
        InputError: a dimension without a size, or one that its axes do not divide; a resharding or
            a product that there cannot be.
    """
    every = (*expression.operands, *([expression.result] if expression.result else []))
    for array in every:
        check_array(array, setting)
    if len(expression.operands) == 2:
        return product_answer(product_of(expression), setting, place, ideal)
    if expression.result is not None:
        return resharding_answer(expression.operands[0], expression.result, setting, place, ideal)
    return layout_answer(expression.operands[0], setting, place)


def ways_of(
    expression: Expression,
    setting: ShapeContext,
    place: MeshOnCluster | None = None,
    ideal: bool = False,
) -> list[tuple[Step, ...]]:
    """Return the steps of every way to a resharding or product, the one answered first."""
    if len(expression.operands) == 2:
        priced = ranked(product_of(expression), setting, place, ideal)
        return [(*each.way.before, *each.way.behind) for each in priced]
    if expression.result is None:
        return [()]
    pair = (expression.operands[0], expression.result)
    return [way for _, way in _resharded(*pair, setting, place, ideal)]


def layout_answer(
    array: ArraySpec, setting: ShapeContext, place: MeshOnCluster | None = None
) -> Answer:
    """Return the bytes that each device holds of an array, its copies, and which part is where."""
    formula, inputs = size_formula(array, setting)
    shards = Input("shards", setting.ways(array.axes), "shards", "different parts")
    devices = Input("devices", setting.devices, "devices", "of the mesh")
    copied = copies(array, setting)
    parts = [
        Answer("bytes of one copy", total_bytes(array, setting), "bytes"),
        by_formula("copies", "", "devices / shards", (devices, shards)),
        Answer("bytes on all devices", copied * total_bytes(array, setting), "bytes"),
    ]
    if place is not None:
        parts.append(_reading(array, setting, place))
    notes = [HOLDS.format(", ".join(array.unreduced))] if array.unreduced else []
    return by_formula(
        f"{format_array(array, setting.mesh)} on each of {setting.devices} devices",
        "bytes",
        formula,
        inputs,
        section=LAYOUT,
        parts=tuple(parts),
        rows=_drawn(array, setting, place),
        notes=tuple(notes),
    )


def resharding_answer(
    source: ArraySpec,
    target: ArraySpec,
    setting: ShapeContext,
    place: MeshOnCluster | None,
    ideal: bool = False,
) -> Answer:
    """Return the time from one sharding to another, or without a place what a device receives.

    To gather several dimensions at once and one after another are two ways: the faster one is
    answered, and both are rows.
    """
    found = _resharded(source, target, setting, place, ideal)
    unit = "bytes" if place is None else "s"
    if len(found) == 1:
        return found[0][0]
    rows: tuple[dict[str, Value], ...] = tuple(
        {"way": "; ".join(map(str, way)), f"time ({unit})": _time(answer, ideal)}
        for answer, way in found
    )
    return replace(found[0][0], rows=rows)


def _resharded(
    source: ArraySpec,
    target: ArraySpec,
    setting: ShapeContext,
    place: MeshOnCluster | None,
    ideal: bool,
) -> list[tuple[Answer, tuple[Step, ...]]]:
    """Every way with its answer, fastest first."""
    ways = [steps(source, target, setting)]
    apart = steps(source, target, setting, together=False)
    ways += [apart] * (apart != ways[0])
    ask = asked(setting, place)
    text = f"{format_array(source, setting.mesh)} -> {format_array(target, setting.mesh)}"
    name, unit = (f"bytes into each device in {text}", "bytes") if place is None else (text, "s")
    notes = () if ways[0] else ("every device has its part already: nothing is sent",)
    more = {"section": RESHARDING, "notes": notes}
    found = [(total(name, unit, [ask(step) for step in way], **more), way) for way in ways]
    return sorted(found, key=lambda pair: _time(pair[0], ideal))


def _time(answer: Answer, ideal: bool) -> float:
    """The textbook's number, or the one that is given."""
    return float((answer.ideal if ideal else answer.answer) or 0)


def size_formula(array: ArraySpec, setting: ShapeContext) -> tuple[str, tuple[Input, ...]]:
    """Bytes on a device: sizes x bytes of a number / devices along the axes that split it."""
    named = {dim.name: setting.size(dim.name) for dim in array.dims if not dim.name.isdigit()}
    inputs = [Input(name, size, "", "size") for name, size in named.items()]
    b = free_symbol("b", (*named, *setting.mesh))
    inputs.append(Input(b, number_bytes(array, setting), "bytes", "of a number"))
    inputs += [Input(axis, setting.mesh[axis], "devices", "along it") for axis in array.axes]
    formula = " * ".join((*(dim.name for dim in array.dims), b))
    if array.axes:
        formula += f" / {product_text(array.axes)}"
    return formula, tuple(inputs)


def _reading(array: ArraySpec, setting: ShapeContext, place: MeshOnCluster) -> Answer:
    """Seconds in which a chip reads its part from its memory."""
    chip, moved = place.cluster.accelerator, device_bytes(array, setting)
    kernel = Kernel("read", kind="copy", bytes=moved)
    fitted = float(kernel_time(kernel, chip, place.fitted).time)
    bytes, bandwidth = (
        Input("V", moved, "bytes", "on a device"),
        Input("W", chip.required("memory_bandwidth"), "bytes/s", f"memory of {chip.name}"),
    )
    return by_formula("time to read its part from memory", "s", "V / W", (bytes, bandwidth), fitted)


def _drawn(
    array: ArraySpec, setting: ShapeContext, place: MeshOnCluster | None
) -> tuple[Mapping[str, Value], ...]:
    """Which device holds what, of small meshes."""
    if setting.devices > MOST_DRAWN:
        return ()
    chips = np.arange(setting.devices) if place is None else devices_of(setting.mesh, place.cluster)
    held = zip(chips, slices(array, setting), strict=True)
    return tuple({"device": int(chip), **where, "holds": part} for chip, (where, part) in held)
