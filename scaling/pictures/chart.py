"""Lines, areas, points with ranges and bands in one pair of axes, above their legend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from scaling.pictures.axes import Frame
from scaling.pictures.legend import Look, mark
from scaling.pictures.shapes import SMALL, Area, Line, Picture, Point, Shape, Text, outline

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


def chart(
    title: str,
    frame: Frame,
    series: Mapping[str, Series],
    names: Sequence[tuple[str, float, float]] = (),
    sides: Sequence[Text] = SIDES,
) -> Picture:
    """Return series in a frame, above a legend.

    Args:
        series: by their words in the legend; one whose words begin with "_" has no entry.
        names: (name, x, y) of points that are named beside them.
        sides: how the names are written in turn, x and y in pixels from the point.
    """
    shapes: list[Shape] = []
    for words, one in series.items():
        if one.band:
            paint: dict[str, Any] = {"fill": one.look.colour, "stroke": "none"}
            paint |= {"words": words} if one.look.mark == "box" else {"opacity": FAINT}
            shapes.append(Area(frame.path(outline(one.band)), **paint))
        for x, low, high in one.ranges:
            shapes.append(Line(frame.path([(x, low), (x, high)]), stroke=RANGE, thick=0.8))
    for one in series.values():
        look, at = one.look, frame.path(one.points)
        if look.dash is not None and len(at) > 1:
            shapes.append(Line(at, stroke=look.colour, dash=look.dash, thick=look.thick))
        if look.mark not in ("", "box") or len(at) == 1:
            look = replace(look, mark=look.mark or "o")
            for point, said in zip(at, one.words or [""] * len(at), strict=True):
                shapes += mark(point, look, said)
    for (name, x, y), side in zip(names, cycle(sides), strict=False):
        left, top = frame.at(x, y)
        shapes.append(replace(side, x=left + side.x, y=top + side.y, words=name))
    looks = {words: one.look for words, one in series.items() if words[:1] != "_"}
    return frame.picture(title, shapes, looks)
