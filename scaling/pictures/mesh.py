"""A mesh on its devices: the place of each along each axis, and who communicates with whom.

A panel for each axis; a square is a device, a row a node. Number and colour are its place along the
axis: devices of one colour hold the same part of what is sharded over it. Thick edges mark one
group, which communicates along the axis: that of device 0.
"""

import math
from collections.abc import Mapping

import numpy as np

from scaling.meshes.shape import groups_along
from scaling.pictures.palette import COLOURS, INK_ON
from scaling.pictures.shapes import SMALL, Picture, Rect, Shape, Text, beside

MOST = 256  # devices that are drawn: the first ones
STEP, SIDE = 30.0, 26.0  # pixels from a square to the next, and of its side
ACROSS = 3  # panels beside one another


def mesh_axes(
    mesh: Mapping[str, int], per_node: int, title: str, ids: np.ndarray | None = None
) -> Picture:
    """Return the devices of a mesh once for each of its axes, coloured by their place along it.

    Args:
        mesh: axis -> size, outermost first.
        per_node: devices of a node, a row.
        ids: of the devices, in the order of the mesh; None: 0, 1, ...
    """
    axes = [axis for axis, size in mesh.items() if size > 1] or list(mesh)[:1]
    places = np.arange(math.prod(mesh.values())) if ids is None else ids
    count = int(places.max()) + 1
    width = min(per_node, count)
    shown = min(count, max(MOST // width, 1) * width)
    size, panels = (STEP * width, STEP * -(-shown // width)), []
    for axis in axes:
        squares = _squares(places[groups_along(mesh, (axis,))], width, shown)
        panels.append(Picture(f"{axis}={mesh[axis]}", *size, squares))
    note = "" if shown == count else f", the first {shown} of {count:,} devices"
    return beside(title + note, panels, ACROSS)


def _squares(groups: np.ndarray, width: int, shown: int) -> list[Shape]:
    """The first devices, `width` to a row; `groups` are device ids [groups, members]."""
    shapes: list[Shape] = []
    for number, members in enumerate(groups):
        for place, device in enumerate(members.tolist()):
            if device < shown:
                row, column = divmod(device, width)
                colour = COLOURS[place % len(COLOURS)]
                x, y = column * STEP + 2, row * STEP + 2
                shapes.append(Rect(x, y, SIDE, SIDE, colour, line=0.5 if number else 3.0))
                at, ink = (x + SIDE / 2, y + SIDE / 2 + 4.5), INK_ON.get(colour, "black")
                shapes.append(Text(*at, str(place), "middle", ink, SMALL))
    return shapes
