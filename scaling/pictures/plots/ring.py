"""The steps of a collective, one frame each: a row for each member, a square for each piece.

A full square is a finished piece, a pale one a sum that lacks terms; what has just arrived has a
thick edge.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling.pictures.palette import BLACK, COLOURS
from scaling.pictures.plots.style import SMALL, picture

ACROSS = 4  # frames in a row
FRAME = 2.1  # inches
SIDE = 0.84  # of a square, in the distance of two
PALE = 0.45  # opacity of a sum that lacks terms


def plot_ring(frames: Sequence[Any], title: str, path: Path) -> None:
    """Draw every step of a collective around a ring.

    Args:
        frames: `scaling.pictures.drawing.frames.Frame`s, at least one.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    columns = min(ACROSS, len(frames))
    rows = -(-len(frames) // columns)
    size = (FRAME * columns, FRAME * rows + 0.4)
    with picture(path, size=size, nrows=rows, ncols=columns, squeeze=False) as grid:
        for number, axes in enumerate(grid.ravel()):
            axes.set_axis_off()
            if number < len(frames):
                _draw(axes, frames[number])
                axes.set_title(f"step {number}" if number else "before", fontsize=9)
        grid[0, 0].figure.suptitle(title, fontsize=10)


def _draw(axes: Any, frame: Any) -> None:
    from matplotlib.patches import Rectangle

    members = len(frame.terms)
    received = {(target, piece) for _, target, piece in frame.sends}
    for member, held in enumerate(frame.terms):
        axes.text(-0.25, member + SIDE / 2, str(member), ha="right", va="center", fontsize=SMALL)
        for piece, terms in enumerate(held):
            share = terms / frame.full
            colour = COLOURS[piece % len(COLOURS)]
            bottom = member + SIDE * (1 - share)
            filled = Rectangle((piece, bottom), SIDE, SIDE * share, color=colour, lw=0,
                               alpha=1 if share == 1 else PALE)  # fmt: skip
            thick = 2.0 if (member, piece) in received else 0.5
            frame_of = Rectangle((piece, member), SIDE, SIDE, fill=False, ec=BLACK, lw=thick)
            axes.add_patch(filled)
            axes.add_patch(frame_of)
    axes.set(xlim=(-0.8, members), ylim=(members, -0.15), aspect="equal")
