"""The memory of a device over a step, by category, as stacked areas."""

from collections.abc import Sequence

import numpy as np

from scaling.meshes.units import format_rate, format_time
from scaling.pictures.drawing.svg import (
    BOTTOM,
    HEIGHT,
    LABEL,
    LEFT,
    LINE,
    RIGHT,
    TOP,
    WIDTH,
    box,
    svg,
    text,
)
from scaling.pictures.palette import COLOURS

TICKS = 4  # of the axis of bytes
PER_LINE = 4  # names of the legend in a line


def memory_curve(
    times: np.ndarray, sizes: np.ndarray, names: Sequence[str], end: float, capacity: float | None
) -> str:
    """Return stacked areas of bytes over time, and a dashed line at the capacity.

    Args:
        times: s at which the memory changes, [n].
        sizes: bytes from there on, [n, categories].
        names: of the categories.
        end: s, of the step.
        capacity: bytes; None: not known.
    """
    most = max(float(sizes.sum(axis=1).max()), capacity or 0.0) * 1.05
    across, up = (WIDTH - LEFT - RIGHT) / end, (HEIGHT - TOP - BOTTOM) / most
    left = LEFT + np.concatenate([times, [end]]) * across
    below = np.zeros(len(times))
    shapes = []
    for name, column, colour in zip(names, sizes.T, COLOURS, strict=False):
        if column.any():
            above = below + column
            shapes.append(_area(left, below * up, above * up, colour, name))
            below = above
    if capacity is not None:
        y = HEIGHT - BOTTOM - capacity * up
        shapes.append(_rule(y))
        shapes.append(text(WIDTH - RIGHT, y - 5, f"fits below {format_rate(capacity, 'B')}", "end"))
    for tick in range(TICKS + 1):
        size = most * tick / TICKS
        y = HEIGHT - BOTTOM - size * up
        shapes.append(text(LEFT - 6, y + 4, format_rate(size, "B") if tick else "0", "end"))
    shapes.append(text(WIDTH - RIGHT, HEIGHT - BOTTOM + 16, format_time(end), "end"))
    return svg([*shapes, *_legend(names, sizes)], HEIGHT + 2 * LABEL)


def _area(left: np.ndarray, below: np.ndarray, above: np.ndarray, colour: str, name: str) -> str:
    """Return the area between two step functions, in pixels above the axis."""
    base = HEIGHT - BOTTOM
    upper = [(x, base - y) for i, y in enumerate(above) for x in (left[i], left[i + 1])]
    lower = [(x, base - y) for i, y in enumerate(below) for x in (left[i], left[i + 1])]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
    return f'<polygon points="{points}" fill="{colour}"><title>{name}</title></polygon>'


def _rule(y: float) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}" '
        'stroke-width="2" stroke-dasharray="6 4"/>'
    )


def _legend(names: Sequence[str], sizes: np.ndarray) -> list[str]:
    used = [(n, c) for n, c, s in zip(names, COLOURS, sizes.T, strict=False) if s.any()]
    shapes, width = [], WIDTH / PER_LINE
    for number, (name, colour) in enumerate(used):
        x, y = 10 + number % PER_LINE * width, HEIGHT + number // PER_LINE * LABEL
        shapes += [box(x, y - 10, 11, 11, colour), text(x + 15, y, name)]
    return shapes
