"""Sharded arrays, asked: what devices hold of one, and what it takes to shard it otherwise."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from scaling.meshes.errors import InputError
from scaling.meshes.placement import devices_of
from scaling.program.ir import Kernel
from scaling.questions.answer import Answer, Input, Value, by_formula, number
from scaling.questions.notation import (
    ArraySpec,
    Expression,
    format_array,
    free_symbol,
    quotient_text,
)
from scaling.questions.product import product_of
from scaling.questions.product_time import product_answer, ranked
from scaling.questions.resharding import ReshardingStep, step_answer, steps, total
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
LARGEST_TILE = 2**20  # along one dimension; far beyond any layout, chosen by this project
MOST_DRAWN = 32  # devices whose parts are listed: a screen
HOLDS = "what differs along {} are terms of a sum"


def array_answer(expression: Expression, setting: ShapeContext) -> Answer:
    """Return the answer about one array, a resharding or a product.

    Raises:
        InputError: a dimension without a size, or one that its axes do not divide; a resharding or
            a product that there cannot be.
    """
    for array in expression.arrays:
        check_array(array, setting)
    if len(expression.operands) == 2:
        return product_answer(product_of(expression), setting)
    if expression.result is not None:
        return resharding_answer(expression.operands[0], expression.result, setting)
    return layout_answer(expression.operands[0], setting)


def ways_of(expression: Expression, setting: ShapeContext) -> list[tuple[ReshardingStep, ...]]:
    """Return the steps of every way to a resharding or product, the one answered first."""
    if len(expression.operands) == 2:
        priced = ranked(product_of(expression), setting)
        return [(*each.way.before, *each.way.behind) for each in priced]
    if expression.result is None:
        return [()]
    return [way for _, way in _resharded(expression.operands[0], expression.result, setting)]


def layout_answer(array: ArraySpec, setting: ShapeContext) -> Answer:
    """Return the bytes that each device holds of an array, its copies, and which part is where."""
    place = setting.place
    shards = Input("shards", setting.ways(array.axes), "shards", "different parts")
    devices = Input("devices", setting.devices, "devices", "of the mesh")
    whole = total_bytes(array, setting)
    parts = [
        Answer("bytes of one copy", whole, "bytes"),
        by_formula("copies", "", "devices / shards", (devices, shards)),
        Answer("bytes on all devices", copies(array, setting) * whole, "bytes"),
    ]
    if place is not None:
        chip, moved = place.cluster.accelerator, device_bytes(array, setting)
        kernel = Kernel("read", kind="copy", bytes=moved)
        fitted = float(kernel_time(kernel, chip, place.fitted).time)
        V = Input("V", moved, "bytes", "on a device")
        W = Input("W", chip.required("memory_bandwidth"), "bytes/s", f"memory of {chip.name}")
        name = "time to read its part from memory"
        parts.append(by_formula(name, "s", "V / W", (V, W), fitted))
    rows: tuple[Mapping[str, Value], ...] = ()
    if setting.devices <= MOST_DRAWN:
        ids = np.arange(setting.devices)
        chips = ids if place is None else devices_of(setting.mesh, place.cluster)
        held = zip(chips, slices(array, setting), strict=True)
        rows = tuple({"device": int(chip), **at, "holds": part} for chip, (at, part) in held)
    return by_formula(
        f"{format_array(array, setting.mesh)} on each of {setting.devices} devices",
        "bytes",
        *_size_formula(array, setting),
        section=LAYOUT,
        parts=tuple(parts),
        rows=rows,
        notes=(HOLDS.format(", ".join(array.unreduced)),) if array.unreduced else (),
    )


def resharding_answer(source: ArraySpec, target: ArraySpec, setting: ShapeContext) -> Answer:
    """Return the time from one sharding to another, or without a place what a device receives.

    To gather several dimensions at once and one after another are two ways: the faster one is
    answered, and both are rows.
    """
    answers = _resharded(source, target, setting)
    best, _ = answers[0]
    if len(answers) == 1:
        return best
    rows: tuple[dict[str, Value], ...] = tuple(
        {
            "way": "; ".join(map(str, way)),
            f"time ({best.unit})": number(answer, setting.by_rule),
        }
        for answer, way in answers
    )
    return replace(best, rows=rows)


def _resharded(
    source: ArraySpec, target: ArraySpec, setting: ShapeContext
) -> list[tuple[Answer, tuple[ReshardingStep, ...]]]:
    """Every way with its answer, fastest first."""
    ways = [steps(source, target, setting, together) for together in (True, False)]
    name = f"{format_array(source, setting.mesh)} -> {format_array(target, setting.mesh)}"
    if setting.place is None:
        name = f"bytes into each device in {name}"
    notes = (*_from_outside(source, target),)
    notes += () if ways[0] else ("every device has its part already: nothing is sent",)
    more = {"section": RESHARDING, "notes": notes}
    answers = [
        (total(name, setting.unit, [step_answer(step, setting) for step in way], **more), way)
        for way in dict.fromkeys(ways)
    ]
    return sorted(answers, key=lambda pair: number(pair[0], setting.by_rule))


def _from_outside(source: ArraySpec, target: ArraySpec) -> Iterator[str]:
    """Where an outer axis of a dimension leaves and an inner one stays: what the guide counts."""
    for place, (here, there) in enumerate(zip(source.dims, target.dims, strict=True)):
        left = tuple(axis for axis in here.axes if axis not in there.axes)
        stays = there.axes and {*there.axes} < {*here.axes}
        if stays and here.axes[: len(there.axes)] != there.axes:
            dims = list(source.dims)
            dims[place] = replace(here, axes=there.axes + left)
            turned = f"{format_array(replace(source, dims=tuple(dims)))} -> {format_array(target)}"
            yield (
                f"{', '.join(left)} leaves from outside {', '.join(there.axes)}, which leaves no "
                f"consecutive parts; the guide counts a gather over {', '.join(left)} alone: that "
                f"is {turned}"
            )


def _size_formula(array: ArraySpec, setting: ShapeContext) -> tuple[str, tuple[Input, ...]]:
    """Bytes on a device: sizes x bytes of a number / devices along the axes that split it."""
    symbol = free_symbol("b", (*array.names, *setting.mesh))
    b = Input(symbol, number_bytes(array, setting), "bytes", "of a number")
    inputs = (*setting.size_inputs(array.names), b, *setting.axis_inputs(array.axes))
    return quotient_text((*array.names, symbol), array.axes), inputs


def read_tile(text: str) -> tuple[int, ...]:
    """Return the sizes of a tile, those of the last dimensions, from "8,128"."""
    sizes = [part.strip() for part in text.split(",")]
    digits = all(size.isascii() and size.isdigit() for size in sizes)
    if not digits or not all(1 <= int(size) <= LARGEST_TILE for size in sizes):
        raise InputError(
            f"--tile {text!r} is no tile; write its sizes, such as 8,128, of 1 to {LARGEST_TILE:,}"
        )
    return tuple(map(int, sizes))


def tiled(asked: Expression, setting: ShapeContext, tile: tuple[int, ...]) -> tuple[Answer, Answer]:
    """Return the bytes of a device's part in whole tiles, and how many times more that is.

    XLA lays the last dimensions of arrays out so, f32[3,5] in T(2,2) as [4,6]
    (https://openxla.org/xla/tiled_layout).

    Raises:
        InputError: a resharding or product, or a tile of more dimensions than the array.
    """
    array = asked.operands[0]
    if len(asked.arrays) > 1:
        raise InputError("--tile is about one array, such as fp32[3,5]")
    if len(tile) > len(array.dims):
        raise InputError(
            f"--tile has {len(tile)} dimensions, {format_array(array, setting.mesh)} has "
            f"{len(array.dims)}"
        )
    plain, inputs = _size_formula(array, setting)
    sizes = (None,) * (len(array.dims) - len(tile)) + tile
    parts = [quotient_text([dim.name], dim.axes) for dim in array.dims]
    terms = [
        part if size is None else f"ceil({part} / {size}) * {size}"
        for part, size in zip(parts, sizes, strict=True)
    ]
    b = next(given.symbol for given in inputs if given.unit == "bytes")
    name = f"bytes in tiles of {'x'.join(map(str, tile))}"
    padded = by_formula(name, "bytes", " * ".join((*terms, b)), inputs)
    bytes = by_formula("", "bytes", plain, inputs)
    whole = (Input("P", float(padded), "bytes", name), Input("V", float(bytes), "bytes", "without"))
    return padded, by_formula("growth by tiles", "", "P / V", whole)
