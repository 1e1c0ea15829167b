"""Lines, points with ranges and bands in one pair of axes, above their legend.

curves      lines and named points, both axes logarithmic
sweep       measured times over sizes, and the line alpha + V / W beside them
bandwidth   of a collective over its size: predicted with its range, the bound, what was measured
scatter     predicted over measured numbers, beside the line where both agree
scaling     tokens/s and efficiency over the number of devices
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scaling.pictures.axes import HEIGHT, Scale, plane
from scaling.pictures.legend import Look, legend, mark
from scaling.pictures.shapes import SMALL, WIDTH, Area, Line, Picture, Point, Shape, Text

FAINT = 0.2  # opacity of a band
SIDES = ((-10, -10, "end"), (10, 18, "start"))  # of a point where its name stands, in turn


@dataclass(frozen=True)
class Series:
    """Points of one look, and what spans above and below them.

    Attributes:
        look: of the line and of the marks.
        points: (x, y) of each.
        band: (x, low, high) of a pale area.
        ranges: (x, low, high) of thin lines.
        words: what the pointer shows, one for each point or none.
    """

    look: Look
    points: Sequence[Point] = ()
    band: Sequence[tuple[float, float, float]] = ()
    ranges: Sequence[tuple[float, float, float]] = ()
    words: Sequence[str] = ()


def chart(
    title: str,
    x: Scale,
    y: Scale,
    series: Mapping[str, Series],
    names: Sequence[tuple[str, float, float]] = (),
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Picture:
    """Return series in axes, above a legend.

    Args:
        x, y: the axes.
        series: by their words in the legend; one whose words begin with "_" has no entry.
        names: (name, x, y) of points that are named beside them.
        width, height: pixels, without the legend.
    """
    axes = plane(x, y, width, height)
    shapes = axes.frame()
    for one in series.values():
        if one.band:
            upper = axes.path((a, high) for a, _, high in one.band)
            lower = axes.path((a, low) for a, low, _ in reversed(one.band))
            shapes.append(Area([*upper, *lower], one.look.colour, FAINT))
        for a, low, high in one.ranges:
            shapes.append(Line([axes.at(a, low), axes.at(a, high)], width=0.8, opacity=0.3))
    for one in series.values():
        shapes += _drawn(one, axes.path(one.points))
    for number, (name, a, b) in enumerate(names):
        (left, top), (aside, down, end) = axes.at(a, b), SIDES[number % len(SIDES)]
        shapes.append(Text(left + aside, top + down, name, end, size=SMALL))
    looks = {words: one.look for words, one in series.items() if words[:1] != "_"}
    entries, bottom = legend(looks, axes.below, width)
    return Picture(title, width, bottom + 8, [*shapes, *entries])


def _drawn(one: Series, at: Sequence[Point]) -> list[Shape]:
    look = one.look
    shapes: list[Shape] = []
    if look.dash is not None and len(at) > 1:
        shapes.append(Line(at, look.colour, 2, look.dash))
    if look.mark not in ("", "box") or len(at) == 1:
        look = replace(look, mark=look.mark or "o")
        words = one.words or [""] * len(at)
        shapes += [
            s for point, said in zip(at, words, strict=True) for s in mark(point, look, said)
        ]
    return shapes
