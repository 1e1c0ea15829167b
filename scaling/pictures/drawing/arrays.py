"""Drawing of an array on a mesh: who holds which part, as inline SVG.

On the left the whole array with its parts, each with the devices that hold it; on the right the
mesh, one square per device, in which the part that it holds is filled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.pictures.drawing.svg import LINE, svg, text
from scaling.pictures.palette import COLOURS
from scaling.questions.notation import parse_expression
from scaling.questions.sharding import coordinates, index

ARRAY, SQUARE = 240, 52  # pixels: side of the whole array, side of a device's square
CELL = (80, 96)  # pixels of a device on the mesh: across, down
LIGHTER = 0.4  # opacity of the palette's second round
INK, ON_BLUE = "#000000", "#ffffff"  # of words on the palette: its first colour is dark
FONT = 15  # pixels: read on a phone, where the drawing is half as wide
LEFT, TOP, MESH = 10, 40, 310  # pixels: left edge, upper edge, left edge of the mesh


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


def array_on_mesh(written: str, mesh: Mapping[str, int], chosen: int) -> str:
    """Return the drawing, with the part of one device outlined.

    Args:
        written: an array of two dimensions, `A[I_X,J] {U_Y}`.
        mesh: two axes with their sizes: the first goes down, the second across.
        chosen: device whose part is outlined.
    """
    held = parts(written, mesh)
    blocks = (1 + max(part.row for part in held), 1 + max(part.column for part in held))
    down, _ = mesh
    height = TOP + max(ARRAY, CELL[1] * mesh[down]) + 10
    shapes = [text(LEFT, TOP - 12, "the array, and who holds each part")]
    shapes += _whole(held, blocks, chosen)
    shapes += _mesh(held, blocks, tuple(mesh), chosen)
    return svg([f'<g font-size="{FONT}">', *shapes, "</g>"], height)


def _whole(held: list[Part], blocks: tuple[int, int], chosen: int) -> list[str]:
    rows, columns = blocks
    size = (ARRAY / columns, ARRAY / rows)
    shapes = []
    for row in range(rows):
        for column in range(columns):
            at = (LEFT + column * size[0], TOP + row * size[1])
            who = [part.device for part in held if (part.row, part.column) == (row, column)]
            number = row * columns + column
            shapes.append(_block(at, size, number, chosen in who))
            shapes += _names(at, size, who, INK if number else ON_BLUE)
    return shapes


def _names(
    at: tuple[float, float], size: tuple[float, float], who: list[int], ink: str
) -> list[str]:
    """The devices of a part, as many on a line as fit."""
    fit = max(1, int(size[0] // 28))
    lines = [", ".join(map(str, who[i : i + fit])) for i in range(0, len(who), fit)]
    first = at[1] + size[1] / 2 - 8 * (len(lines) - 1) + 4
    middle = at[0] + size[0] / 2
    return [text(middle, first + 16 * i, words, "middle", ink) for i, words in enumerate(lines)]


def _mesh(
    held: list[Part], blocks: tuple[int, int], axes: tuple[str, ...], chosen: int
) -> list[str]:
    down, across = axes
    shapes = [text(MESH, TOP - 12, f"the mesh: {down} goes down, {across} across")]
    for part in held:
        x = MESH + part.place[across] * CELL[0]
        y = TOP + part.place[down] * CELL[1]
        size = (SQUARE / blocks[1], SQUARE / blocks[0])
        at = (x + part.column * size[0], y + part.row * size[1])
        frame = f'x="{x}" y="{y}" width="{SQUARE}" height="{SQUARE}"'
        shapes.append(f'<rect {frame} fill="none" stroke="{LINE}" stroke-dasharray="2 3"/>')
        number = part.row * blocks[1] + part.column
        shapes.append(_block(at, size, number, part.device == chosen))
        shapes.append(text(x, y + SQUARE + 15, f"device {part.device}"))
        if part.terms:
            words = "term " + ", ".join(map(str, part.terms))
            shapes.append(text(x, y + SQUARE + 30, words))
    return shapes


def _block(at: tuple[float, float], size: tuple[float, float], number: int, outlined: bool) -> str:
    """A part; those past the palette have its colours again, lighter."""
    again, colour = divmod(number, len(COLOURS))
    fill = f'fill="{COLOURS[colour]}" fill-opacity="{LIGHTER**again}"'
    return (
        f'<rect x="{at[0]:.1f}" y="{at[1]:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" '
        f'{fill} stroke="{LINE}" stroke-width="{4 if outlined else 1}"/>'
    )
