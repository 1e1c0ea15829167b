"""Lines in logarithmic axes with a legend: how quantities grow, and where they cross."""

import math
from collections.abc import Sequence

from scaling.pictures.drawing.svg import (
    BOTTOM,
    HEIGHT,
    LABEL,
    LEFT,
    LINE,
    Axes,
    dot,
    line,
    log_axes,
    svg,
    text,
)
from scaling.pictures.palette import COLOURS

Points = Sequence[tuple[float, float]]
SWATCH = 12  # pixels, the side of a colour's square in a legend
COLUMN = 280  # pixels from one entry of a legend to that beside it
SIDES = ((-10, -10, "end"), (10, 18, "start"))  # of a point where its name stands, in turn
DASHES = ("", "6 4")  # of lines with the same colour: the rule, the fit


def curves(
    lines: Sequence[tuple[str, Points, int, int]],
    marks: Sequence[tuple[str, float, float]],
    across: str,
    up: str,
    at: float | None = None,
) -> str:
    """Return lines in logarithmic axes under a legend.

    Args:
        lines: name, points, number of the colour and of the dashes of each.
        marks: name, x and y of points that are named.
        across, up: names of the axes.
        at: x of a vertical line, such as a slider's.
    """
    values = [y for _, points, _, _ in lines for _, y in points]
    xs = [x for _, points, _, _ in lines for x, _ in points]
    axes = Axes((min(xs), max(xs)), (min(values) / 1.5, max(values) * 2))
    legend = _legend([(name, colour, dashes) for name, _, colour, dashes in lines])
    shapes = log_axes(axes, across, up)
    if at is not None:
        shapes.append(line([axes.at(at, axes.y[0]), axes.at(at, axes.y[1])], LINE, "2 4"))
    for _, points, colour, dashes in lines:
        shapes.append(line([axes.at(*p) for p in points], COLOURS[colour], DASHES[dashes]))
    for number, (name, x, y) in enumerate(marks):
        left, top = axes.at(x, y)
        aside, down, end = SIDES[number % len(SIDES)]
        shapes += [
            dot(left, top, LINE, name),
            text(left + aside, top + down, name, end),
        ]
    rows = math.ceil(len(lines) / 2)
    moved = f'<g transform="translate(0 {HEIGHT + 6})">{"".join(legend)}</g>'
    return svg([*shapes, moved], HEIGHT + rows * (LABEL + 4) + BOTTOM // 2)


def _legend(entries: Sequence[tuple[str, int, int]]) -> list[str]:
    """Return the entries of a legend in two columns, its first line at height 0."""
    shapes = []
    for place, (name, colour, dashes) in enumerate(entries):
        x, y = LEFT + COLUMN * (place % 2), (place // 2) * (LABEL + 4) + SWATCH
        middle = y - SWATCH / 2 + 2
        shapes += [
            line([(x, middle), (x + 2 * SWATCH, middle)], COLOURS[colour], DASHES[dashes]),
            text(x + 2 * SWATCH + 6, y, name),
        ]
    return shapes
