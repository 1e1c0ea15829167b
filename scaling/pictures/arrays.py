"""An array on a mesh: who holds which part.

On the left the whole array with its parts, each with the devices that hold it; on the right the
mesh, one square per device, in which the part that it holds is filled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.pictures.palette import COLOURS, INK_ON
from scaling.pictures.shapes import Picture, Point, Rect, Shape, Text
from scaling.questions.notation import parse_expression
from scaling.questions.sharding import coordinates, index

ARRAY, SQUARE = 240.0, 52.0  # pixels: side of the whole array, side of a device's square
CELL = (80, 96)  # pixels of a device on the mesh: across, down
LIGHTER = 0.4  # opacity of the palette's second round
LEFT, TOP, MESH = 10.0, 30.0, 310.0  # pixels: left edge, upper edge, left edge of the mesh


@dataclass(frozen=True)
class Part:
    """What one device holds of a matrix: its block, counted from 0, and its terms of sums."""

    device: int
    place: Mapping[str, int]  # axis -> coordinate
    row: int
    column: int
    terms: tuple[int, ...]  # along each axis of partial sums


def parts(written: str, mesh: Mapping[str, int]) -> list[Part]:
    """Return what every device holds of an array such as `A[I_X,J]`, in the order of devices."""
    array = parse_expression(written, list(mesh)).operands[0]
    rows, columns = array.dims
    found = []
    for device in range(math.prod(mesh.values())):
        place = coordinates(device, mesh)
        row, column = (index(dim.axes, place, mesh) for dim in (rows, columns))
        found.append(Part(device, place, row, column, tuple(place[a] for a in array.unreduced)))
    return found


def array_on_mesh(written: str, mesh: Mapping[str, int], chosen: int) -> Picture:
    """Return the array beside its mesh, with the part of one device outlined.

    Args:
        written: an array of two dimensions, `A[I_X,J] {U_Y}`.
        mesh: two axes with their sizes: the first goes down, the second across.
        chosen: device whose part is outlined.
    """
    held = parts(written, mesh)
    blocks = (1 + max(part.row for part in held), 1 + max(part.column for part in held))
    down, across = mesh
    height = TOP + max(ARRAY, CELL[1] * mesh[down]) + 6
    width = max(640.0, MESH + CELL[0] * mesh[across])
    shapes: list[Shape] = [
        Text(LEFT, TOP - 10, "the array, and who holds each part"),
        Text(MESH, TOP - 10, f"the mesh: {down} goes down, {across} across"),
        *_whole(held, blocks, chosen),
    ]
    for part in held:
        x, y = MESH + part.place[across] * CELL[0], TOP + part.place[down] * CELL[1]
        size = (SQUARE / blocks[1], SQUARE / blocks[0])
        shapes.append(Rect(x, y, SQUARE, SQUARE, line=1, dash="2 3"))
        number = part.row * blocks[1] + part.column
        at = (x + part.column * size[0], y + part.row * size[1])
        shapes.append(_block(at, size, number, part.device == chosen))
        shapes.append(Text(x, y + SQUARE + 16, f"device {part.device}"))
        if part.terms:
            words = "term " + ", ".join(map(str, part.terms))
            shapes.append(Text(x, y + SQUARE + 32, words))
    return Picture(written, width, height, shapes)


def _whole(held: list[Part], blocks: tuple[int, int], chosen: int) -> list[Shape]:
    """The array, and in each part the devices that hold it, as many on a line as fit."""
    rows, columns = blocks
    size = (ARRAY / columns, ARRAY / rows)
    fit = max(1, int(size[0] // 28))
    shapes: list[Shape] = []
    for number in range(rows * columns):
        row, column = divmod(number, columns)
        at = (LEFT + column * size[0], TOP + row * size[1])
        who = [part.device for part in held if (part.row, part.column) == (row, column)]
        shapes.append(_block(at, size, number, chosen in who))
        ink = INK_ON.get(COLOURS[number], "black") if number < len(COLOURS) else "black"
        lines = [", ".join(map(str, who[i : i + fit])) for i in range(0, len(who), fit)]
        first = at[1] + size[1] / 2 - 8 * (len(lines) - 1) + 4
        shapes += [
            Text(at[0] + size[0] / 2, first + 16 * i, words, "middle", ink)
            for i, words in enumerate(lines)
        ]
    return shapes


def _block(at: Point, size: Point, number: int, outlined: bool) -> Rect:
    """A part; those past the palette have its colours again, lighter."""
    again, colour = divmod(number, len(COLOURS))
    line = 4 if outlined else 1
    return Rect(*at, *size, COLOURS[colour], line=line, opacity=LIGHTER**again)
