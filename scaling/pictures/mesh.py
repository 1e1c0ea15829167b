"""A mesh on its devices: the place of each along each axis, and who communicates with whom.

A panel for each axis; a square is a device, a row a node. Number and colour are its place along the
axis: devices of one colour hold the same part of what is sharded over it. Thick edges mark one
group, which communicates along the axis: that of device 0.
"""

import math
from collections.abc import Mapping

import numpy as np

from scaling.meshes.shape import groups_along
from scaling.pictures.palette import COLOURS
from scaling.pictures.shapes import Picture, Shape, beside, box

MOST = 256  # devices that are drawn: the first ones
STEP, SIDE = 30.0, 26.0  # pixels from a square to the next, and of its side
ACROSS = 3  # panels beside one another


def mesh_axes(
    mesh: Mapping[str, int], per_node: int, title: str, ids: np.ndarray | None = None
) -> Picture:
    """Return the devices of a mesh once for each of its axes, coloured by their place along it.

    Args:
        mesh: axis -> size, outermost first.
        ids: of the devices, in the order of the mesh; None: 0, 1, ...
    """
    axes = [axis for axis, size in mesh.items() if size > 1] or list(mesh)[:1]
    devices = np.arange(math.prod(mesh.values())) if ids is None else ids
    count = int(devices.max()) + 1
    width = min(per_node, count)
    shown = min(count, max(MOST // width, 1) * width)
    panels = []
    for axis in axes:
        shapes: list[Shape] = []
        groups = devices[groups_along(mesh, (axis,))]
        for (group, place), device in np.ndenumerate(groups):
            if device < shown:
                at = device % width * STEP + 2, device // width * STEP + 2
                colour, thick = COLOURS[place % len(COLOURS)], 0.5 if group else 3.0
                shapes += box(at, (SIDE, SIDE), colour, str(place), thick=thick)
        size = STEP * width, STEP * -(-shown // width)
        panels.append(Picture(f"{axis}={mesh[axis]}", *size, shapes))
    note = "" if shown == count else f", the first {shown} of {count:,} devices"
    return beside(title + note, panels, ACROSS)
