"""Stacked bars, one for each case of a comparison: where the time or the memory goes."""

from collections.abc import Callable, Mapping, Sequence

from scaling.pictures.drawing.svg import LINE, WIDTH, box, svg, text
from scaling.pictures.palette import COLOURS

NAME, ROW, BAR, VALUE = 170, 30, 20, 80  # pixels: names, a row, a bar, the sum behind it


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    show: Callable[[float], str],
    limit: float | None = None,
) -> str:
    """Return a bar for each row with its parts, the sum behind it, and a legend.

    Args:
        rows: name of a row -> part -> value; all rows have the same parts.
        show: a value as text.
        limit: where a dashed line is drawn, such as the memory of a device; None: nowhere.
    """
    parts = list(next(iter(rows.values())))
    most = max(*(sum(row.values()) for row in rows.values()), limit or 0.0, 1e-300)
    scale = (WIDTH - NAME - VALUE) / most
    shapes = []
    for number, (name, row) in enumerate(rows.items()):
        shapes += _bar(number * ROW, name, row, scale, show)
    height = len(rows) * ROW
    if limit is not None:
        x = NAME + limit * scale
        shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}" stroke="{LINE}" '
            'stroke-width="2" stroke-dasharray="4 4"/>'
        )
    return svg([*shapes, *_legend(parts, height + ROW)], height + 2 * ROW)


def _bar(
    top: float, name: str, row: Mapping[str, float], scale: float, show: Callable[[float], str]
) -> list[str]:
    x = float(NAME)
    shapes = [text(NAME - 8, top + BAR - 5, name, "end")]
    for (part, value), colour in zip(row.items(), COLOURS, strict=False):
        if value > 0:
            shapes.append(box(x, top, value * scale, BAR, colour, f"{part}: {show(value)}"))
            x += value * scale
    return [*shapes, text(x + 6, top + BAR - 5, show(sum(row.values())))]


def _legend(parts: Sequence[str], y: float) -> list[str]:
    width = (WIDTH - 10) / len(parts)
    shapes = []
    for number, (part, colour) in enumerate(zip(parts, COLOURS, strict=False)):
        x = 10 + number * width
        shapes += [box(x, y - 11, 12, 12, colour), text(x + 17, y, part)]
    return shapes
