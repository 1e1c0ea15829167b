"""Lines, areas, points with ranges and bands in one pair of axes, above their legend."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import Any

from scaling.pictures.axes import AXIS, Scale, ticks_below
from scaling.pictures.legend import Look, legend, mark
from scaling.pictures.shapes import (
    GRID,
    SMALL,
    WIDTH,
    Area,
    Line,
    Picture,
    Point,
    Shape,
    Text,
    outline,
    text_width,
)

HEIGHT = 320.0  # pixels of a plane with what is written beside its axes
RIGHT, ABOVE = 24.0, 28.0  # pixels right of a plane and above it
FAINT = 0.2  # opacity of a band
RANGE = "#888a"  # of thin lines, on white and on black
# Where the name of a point stands beside it, in turn.
SIDES = (Text(-10, -10, "", "end", size=SMALL), Text(10, 18, "", size=SMALL))


@dataclass(frozen=True)
class Series:
    """Points of one look, and what spans above and below them.

    Attributes:
        look: of the line and of the marks.
        points: (x, y) of each.
        band: (x, low, high) of an area, pale unless the look is that of a box.
        ranges: (x, low, high) of thin lines.
        words: what the pointer shows, one for each point or none.
    """

    look: Look
    points: Sequence[Point] = ()
    band: Sequence[tuple[float, float, float]] = ()
    ranges: Sequence[tuple[float, float, float]] = ()
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Plane:
    """Two axes; `width` and `height` are pixels with what is written beside them."""

    x: Scale
    y: Scale
    width: float = WIDTH
    height: float = HEIGHT

    @cached_property
    def left(self) -> float:
        """Pixel of the vertical axis, right of its numbers."""
        return 18 + max(text_width(self.y.text(value), SMALL) for value in self.y.places())

    def path(self, points: Iterable[Point]) -> list[Point]:
        """Return the pixels of points."""
        across, base = self.width - self.left - RIGHT, self.height - AXIS
        place = lambda x, y: (
            self.left + self.x.share(x) * across,
            ABOVE + (1 - self.y.share(y)) * (base - ABOVE),
        )
        return [place(x, y) for x, y in points]

    def frame(self) -> list[Shape]:
        """Return both axes with their ticks, the grid, and their names."""
        left, right, base = self.left, self.width - RIGHT, self.height - AXIS
        shapes = ticks_below(self.x, left, right - left, ABOVE, base)
        values = self.y.places()
        for value, (_, y) in zip(values, self.path((self.x.low, v) for v in values), strict=True):
            shapes.append(Line([(left, y), (right, y)], stroke=GRID, thick=1))
            shapes.append(Text(left - 6, y + 4.5, self.y.text(value), "end", size=SMALL))
        shapes.append(Line([(left, ABOVE), (left, base), (right, base)], thick=1))
        return [*shapes, Text(6, ABOVE - 12, self.y.name, size=SMALL)]


def chart(
    title: str,
    x: Scale,
    y: Scale,
    series: Mapping[str, Series],
    names: Sequence[tuple[str, float, float]] = (),
    sides: Sequence[Text] = SIDES,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Picture:
    """Return series in axes, above a legend.

    Args:
        x, y: the axes.
        series: by their words in the legend; one whose words begin with "_" has no entry.
        names: (name, x, y) of points that are named beside them.
        sides: how the names are written in turn, x and y in pixels from the point.
        width, height: pixels, without the legend.
    """
    axes = Plane(x, y, width, height)
    shapes = axes.frame()
    for words, one in series.items():
        if one.band:
            solid = one.look.mark == "box"
            paint: dict[str, Any] = {"fill": one.look.colour, "stroke": "none"}
            paint |= {"words": words} if solid else {"opacity": FAINT}
            shapes.append(Area(axes.path(outline(one.band)), **paint))
        for a, low, high in one.ranges:
            shapes.append(Line(axes.path([(a, low), (a, high)]), stroke=RANGE, thick=0.8))
    for one in series.values():
        shapes += _drawn(one, axes.path(one.points))
    at = axes.path((a, b) for _, a, b in names)
    for (name, _, _), (left, top), side in zip(names, at, cycle(sides), strict=False):
        shapes.append(replace(side, x=left + side.x, y=top + side.y, words=name))
    looks = {words: one.look for words, one in series.items() if words[:1] != "_"}
    entries, bottom = legend(looks, height, width)
    return Picture(title, width, bottom + 8, [*shapes, *entries])


def _drawn(one: Series, at: Sequence[Point]) -> list[Shape]:
    look = one.look
    shapes: list[Shape] = []
    if look.dash is not None and len(at) > 1:
        shapes.append(Line(at, stroke=look.colour, dash=look.dash, thick=look.thick))
    if look.mark not in ("", "box") or len(at) == 1:
        look = replace(look, mark=look.mark or "o")
        words = one.words or [""] * len(at)
        shapes += [
            s for point, said in zip(at, words, strict=True) for s in mark(point, look, said)
        ]
    return shapes
