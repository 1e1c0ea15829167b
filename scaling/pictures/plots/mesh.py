"""A mesh on its devices: the place of each along each axis, and who communicates with whom.

A panel for each axis; a square is a device, a row a node. Number and colour are its place along the
axis: devices of one colour hold the same part of what is sharded over it. Thick edges mark one
group, which communicates along the axis: that of device 0.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.shape import groups_along
from scaling.pictures.palette import BLACK, BLUE, COLOURS
from scaling.pictures.plots.style import SMALL, picture

MOST = 256  # devices that are drawn: the first ones
SQUARE = 0.28  # inches
SIDE = 0.86  # of a square, in the distance of two
ACROSS = 3  # panels beside one another
GAP = 0.9  # inches around a panel
DARK = BLUE  # the colour on which numbers are white


def plot_mesh(
    mesh: Mapping[str, int], per_node: int, title: str, path: Path, ids: np.ndarray | None = None
) -> None:
    """Draw the devices of a mesh once for each of its axes, coloured by their place along it.

    Args:
        mesh: axis -> size, outermost first.
        per_node: devices of a node, a row.
        title, path: see `plot_bandwidth`.
        ids: of the devices, in the order of the mesh; None: 0, 1, ...

    Raises:
        InputError: see `plot_bandwidth`.
    """
    axes_drawn = [axis for axis, size in mesh.items() if size > 1] or list(mesh)[:1]
    places = np.arange(math.prod(mesh.values())) if ids is None else ids
    count = int(places.max()) + 1
    width = min(per_node, count)
    shown = min(count, max(MOST // width, 1) * width)
    columns = min(ACROSS, len(axes_drawn))
    rows = -(-len(axes_drawn) // columns)
    panel = SQUARE * width + GAP, SQUARE * -(-shown // width) + GAP
    size = max(3.5, columns * panel[0]), rows * panel[1] + 0.3
    with picture(path, size=size, nrows=rows, ncols=columns, squeeze=False) as grid:
        for panel_axes in grid.ravel():
            panel_axes.set_axis_off()
        for panel_axes, axis in zip(grid.ravel(), axes_drawn, strict=False):
            _draw(panel_axes, places[groups_along(mesh, (axis,))], width, shown)
            panel_axes.set_title(f"{axis}={mesh[axis]}", fontsize=9)
        note = "" if shown == count else f", the first {shown} of {count:,} devices"
        grid[0, 0].figure.suptitle(title + note, fontsize=10)


def _draw(axes: Any, groups: np.ndarray, width: int, shown: int) -> None:
    """Draw the first devices, `width` to a row; `groups` are device ids [groups, members]."""
    from matplotlib.patches import Rectangle

    for number, members in enumerate(groups):
        for place, device in enumerate(members.tolist()):
            row, column = divmod(device, width)
            colour = COLOURS[place % len(COLOURS)]
            if device < shown:
                square = Rectangle((column, row), SIDE, SIDE, fc=colour, ec=BLACK)
                square.set_linewidth(0.3 if number else 2.0)
                axes.add_patch(square)
                ink = "white" if colour == DARK else "black"
                axes.text(column + SIDE / 2, row + SIDE / 2, str(place), color=ink, ha="center",
                          va="center_baseline", fontsize=SMALL - 1)  # fmt: skip
    rows = -(-shown // width)
    axes.set(xlim=(-0.1, width), ylim=(rows, -0.1), aspect="equal")
