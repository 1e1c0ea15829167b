"""Sharded arrays, asked: what devices hold of one, and what it takes to shard it otherwise."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scaling.meshes.errors import InputError
from scaling.meshes.placement import devices_of
from scaling.program.ir import Kernel
from scaling.questions.answer import Answer, Input, Value, by_formula, number
from scaling.questions.communication import MeshOnCluster, asked, by_rule, total
from scaling.questions.notation import (
    ArraySpec,
    Dim,
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
LARGEST_TILE = 2**20  # along one dimension; far beyond any layout, chosen by this project
MOST_DRAWN = 32  # devices whose parts are listed: a screen
HOLDS = "what differs along {} are terms of a sum"


def array_answer(
    expression: Expression, setting: ShapeContext, place: MeshOnCluster | None = None
) -> Answer:
    """Return the answer about one array, a resharding or a product.

    Args:
        expression: what is asked.
        setting: mesh, sizes and number format.
        place: where the mesh lies; None: only bytes and FLOPs, no times.

    Raises:
        InputError: a dimension without a size, or one that its axes do not divide; a resharding or
            a product that there cannot be.
    """
    every = (*expression.operands, *([expression.result] if expression.result else []))
    for array in every:
        check_array(array, setting)
    if len(expression.operands) == 2:
        return product_answer(product_of(expression), setting, place)
    if expression.result is not None:
        return resharding_answer(expression.operands[0], expression.result, setting, place)
    return layout_answer(expression.operands[0], setting, place)


def ways_of(
    expression: Expression, setting: ShapeContext, place: MeshOnCluster | None = None
) -> list[tuple[Step, ...]]:
    """Return the steps of every way to a resharding or product, the one answered first."""
    if len(expression.operands) == 2:
        priced = ranked(product_of(expression), setting, place)
        return [(*each.way.before, *each.way.behind) for each in priced]
    if expression.result is None:
        return [()]
    pair = (expression.operands[0], expression.result)
    return [way for _, way in _resharded(*pair, setting, place)]


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
    source: ArraySpec, target: ArraySpec, setting: ShapeContext, place: MeshOnCluster | None
) -> Answer:
    """Return the time from one sharding to another, or without a place what a device receives.

    To gather several dimensions at once and one after another are two ways: the faster one is
    answered, and both are rows.
    """
    found = _resharded(source, target, setting, place)
    unit = "bytes" if place is None else "s"
    if len(found) == 1:
        return found[0][0]
    rows: tuple[dict[str, Value], ...] = tuple(
        {"way": "; ".join(map(str, way)), f"time ({unit})": number(answer, by_rule(place))}
        for answer, way in found
    )
    return replace(found[0][0], rows=rows)


def _resharded(
    source: ArraySpec, target: ArraySpec, setting: ShapeContext, place: MeshOnCluster | None
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
    return sorted(found, key=lambda pair: number(pair[0], by_rule(place)))


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


def read_tile(text: str) -> tuple[int, ...]:
    """Return the sizes of a tile, those of the last dimensions, from "8,128".

    Raises:
        InputError: what is no list of whole numbers.
    """
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

    Args:
        asked: one array.
        setting: mesh, sizes and number format.
        tile: sizes along the last dimensions.

    Raises:
        InputError: a resharding or product, or a tile of more dimensions than the array.
    """
    array = asked.operands[0]
    if len(asked.operands) > 1 or asked.result is not None:
        raise InputError("--tile is about one array, such as fp32[3,5]")
    if len(tile) > len(array.dims):
        raise InputError(
            f"--tile has {len(tile)} dimensions, {format_array(array, setting.mesh)} has "
            f"{len(array.dims)}"
        )
    plain, inputs = size_formula(array, setting)
    sizes = (None,) * (len(array.dims) - len(tile)) + tile
    b = next(given for given in inputs if given.unit == "bytes")
    terms = [_part(dim, size) for dim, size in zip(array.dims, sizes, strict=True)]
    name = f"bytes in tiles of {'x'.join(map(str, tile))}"
    padded = by_formula(name, "bytes", " * ".join((*terms, b.symbol)), inputs)
    bytes = by_formula("", "bytes", plain, inputs)
    whole = (Input("P", float(padded), "bytes", name), Input("V", float(bytes), "bytes", "without"))
    return padded, by_formula("growth by tiles", "", "P / V", whole)


def _part(dim: Dim, tile: int | None) -> str:
    """Return a dimension of a device's part as text, in whole tiles where it has one."""
    own = f"{dim.name} / {product_text(dim.axes)}" if dim.axes else dim.name
    return own if tile is None else f"ceil({own} / {tile}) * {tile}"
