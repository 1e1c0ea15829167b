"""Bars side by side: two or three quantities of each case, each with its value behind it."""

from collections.abc import Callable, Sequence

from scaling.pictures.drawing.svg import WIDTH, box, svg, text
from scaling.pictures.palette import COLOURS

BAR, GAP, LEGEND = 20, 12, 30  # pixels: a bar's height, between groups, above the first
NAMES, VALUES = 150, 85  # widths of the columns of names and of values
FONT = 16  # larger than in plots, for phones: there are few words
BARS = (COLOURS[0], COLOURS[3], COLOURS[4])


def pairs(
    groups: Sequence[tuple[str, Sequence[float]]],
    names: Sequence[str],
    show: Callable[[float], str],
) -> str:
    """Return an SVG with a group of bars for each name of `groups`.

    Args:
        groups: the name of each group and its values, one for each of `names`.
        names: of the bars of a group, up to three.
        show: writes a value.
    """
    most = max(value for _, values in groups for value in values) or 1.0
    scale = (WIDTH - NAMES - VALUES) / most
    shapes, top = _legend(names), float(LEGEND)
    for title, values in groups:
        middle = top + BAR * len(values) / 2
        shapes.append(text(NAMES - 8, middle + 5, title, "end"))
        for value, name, colour in zip(values, names, BARS, strict=False):
            words = f"{title}, {name}: {show(value)}"
            shapes.append(box(NAMES, top, scale * value, BAR - 2, colour, words))
            shapes.append(text(NAMES + scale * value + 6, top + BAR - 4, show(value)))
            top += BAR
        top += GAP
    return svg([f'<g font-size="{FONT}">', *shapes, "</g>"], height=round(top))


def _legend(names: Sequence[str]) -> list[str]:
    """Return a square and a name for each bar of a group, in one line."""
    width = (WIDTH - NAMES) / len(names)
    shapes = []
    for place, (name, colour) in enumerate(zip(names, BARS, strict=False)):
        left = NAMES + place * width
        shapes += [box(left, 3, 14, 14, colour, name), text(left + 20, 16, name)]
    return shapes
