"""An array on a mesh: who holds which part.

On the left the whole array with its parts, each with the devices that hold it; on the right the
mesh, one square per device, in which the part that it holds is filled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from scaling.pictures.palette import COLOURS, INK_ON
from scaling.pictures.shapes import Picture, Rect, Shape, Text
from scaling.questions.notation import parse_expression
from scaling.questions.sharding import coordinates, index

ARRAY, SQUARE = 240.0, 52.0  # pixels: side of the whole array, side of a device's square
CELL = (80, 96)  # pixels of a device on the mesh: across, down
LIGHTER = 0.4  # opacity of the palette's second round
LEFT, TOP, MESH = 10.0, 30.0, 310.0  # pixels: left edge, upper edge, left edge of the mesh


@dataclass(frozen=True)
class DeviceBlock:
    """What one device holds of a matrix: its block, counted from 0, and its terms of sums."""

    device: int
    place: Mapping[str, int]  # axis -> coordinate
    row: int
    column: int
    terms: tuple[int, ...]  # along each axis of partial sums


def parts(written: str, mesh: Mapping[str, int]) -> list[DeviceBlock]:
    """Return what every device holds of an array such as `A[I_X,J]`, in the order of devices."""
    array = parse_expression(written, list(mesh)).operands[0]
    rows, columns = array.dims
    held = []
    for device in range(math.prod(mesh.values())):
        place = coordinates(device, mesh)
        row, column = (index(dim.axes, place, mesh) for dim in (rows, columns))
        held.append(
            DeviceBlock(device, place, row, column, tuple(place[a] for a in array.unreduced))
        )
    return held


def array_on_mesh(written: str, mesh: Mapping[str, int], chosen: int) -> Picture:
    """Return the array beside its mesh, with the part of one device outlined.

    Args:
        written: an array of two dimensions, `A[I_X,J] {U_Y}`.
        mesh: two axes with their sizes: the first goes down, the second across.
        chosen: device whose part is outlined.
    """
    held = parts(written, mesh)
    rows, columns = 1 + max(part.row for part in held), 1 + max(part.column for part in held)
    down, across = mesh
    shapes: list[Shape] = [
        Text(LEFT, TOP - 10, "the array, and who holds each part"),
        Text(MESH, TOP - 10, f"the mesh: {down} goes down, {across} across"),
    ]

    def block(left: float, top: float, side: float, at: tuple[int, int], outlined: bool) -> Rect:
        """A part of an array with its upper left corner there; colours return, lighter."""
        wide, high = side / columns, side / rows
        again, colour = divmod(at[0] * columns + at[1], len(COLOURS))
        paint: dict[str, Any] = {"fill": COLOURS[colour], "opacity": LIGHTER**again}
        corner = left + at[1] * wide, top + at[0] * high
        return Rect(*corner, wide, high, thick=4 if outlined else 1, **paint)

    for at in product(range(rows), range(columns)):
        who = [part.device for part in held if (part.row, part.column) == at]
        shape = block(LEFT, TOP, ARRAY, at, chosen in who)
        shapes.append(shape)
        fit = max(1, int(shape.width // 28))  # devices on a line
        lines = [", ".join(map(str, who[i : i + fit])) for i in range(0, len(who), fit)]
        first = shape.y + shape.height / 2 - 8 * (len(lines) - 1) + 4
        ink = INK_ON.get(shape.fill, "black") if shape.opacity == 1 else "black"
        for number, words in enumerate(lines):
            middle = shape.x + shape.width / 2, first + 16 * number
            shapes.append(Text(*middle, words, "middle", ink))
    for part in held:
        x, y = MESH + part.place[across] * CELL[0], TOP + part.place[down] * CELL[1]
        shapes.append(Rect(x, y, SQUARE, SQUARE, thick=1, dash="2 3"))
        shapes.append(block(x, y, SQUARE, (part.row, part.column), part.device == chosen))
        shapes.append(Text(x, y + SQUARE + 16, f"device {part.device}"))
        if part.terms:
            words = "term " + ", ".join(map(str, part.terms))
            shapes.append(Text(x, y + SQUARE + 32, words))
    height = TOP + max(ARRAY, CELL[1] * mesh[down]) + 6
    return Picture(written, max(640.0, MESH + CELL[0] * mesh[across]), height, shapes)
