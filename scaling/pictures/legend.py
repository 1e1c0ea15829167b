"""How a kind of thing looks, in a picture and in the legend below it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaling.pictures.palette import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.shapes import SMALL, Area, Circle, Line, Point, Rect, Shape, Text, text_width

SWATCH, ENTRY = 13.0, 22.0  # pixels of a legend: a square, a line
LEFT, GAP = 10.0, 18.0  # pixels left of it, and between its columns
RADIUS = 4.5  # pixels of a mark
MARKS: Mapping[str, Sequence[Sequence[Point]]] = {  # paths in radii; y goes down
    "^": [[(0, -1.2), (1.1, 0.8), (-1.1, 0.8)]],
    "v": [[(0, 1.2), (1.1, -0.8), (-1.1, -0.8)]],
    "<": [[(-1.2, 0), (0.8, -1.1), (0.8, 1.1)]],
    "D": [[(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)]],
    "s": [[(-1, -1), (1, -1), (1, 1), (-1, 1)]],
    "x": [[(-1, -1), (1, 1)], [(-1, 1), (1, -1)]],
    "|": [[(0, -1.6), (0, 1.6)]],
}


@dataclass(frozen=True)
class Look:
    """Colour, mark and line of a kind.

    Attributes:
        colour: of all of it.
        mark: of a point: "o" or one of MARKS; "": none. "box": a square in the legend.
        dash: of the line, "" for a solid one; None: there is no line.
        hollow: only the edge of the mark is drawn.
        opacity: of the fill of marks.
        radius: pixels of the mark.
        edge: colour of the edge of marks that are not hollow.
        thick: pixels of the line.
    """

    colour: str
    mark: str = "box"
    dash: str | None = None
    hollow: bool = False
    opacity: float = 1.0
    radius: float = RADIUS
    edge: str = "white"
    thick: float = 2.0


_MARKS = ("o", "^", "s", "D", "v")
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, BLACK, SKY)
LOOKS = tuple(  # of groups in turn, told apart without colour too
    Look(_COLOURS[i % len(_COLOURS)], _MARKS[i % len(_MARKS)])
    for i in range(len(_MARKS) * len(_COLOURS))
)


def mark(at: Point, look: Look, words: str = "") -> list[Shape]:
    """Return the mark of a point."""
    x, y = at
    paint: dict[str, Any] = {"fill": look.colour, "stroke": look.edge, "thick": 0.4}
    if look.hollow:
        paint |= {"fill": "none", "stroke": look.colour, "thick": 1.5}
    paint |= {"opacity": look.opacity, "words": words}
    if look.mark == "o":
        return [Circle(x, y, look.radius, **paint)]
    shapes: list[Shape] = []
    for path in MARKS[look.mark]:
        corners = [(x + look.radius * a, y + look.radius * b) for a, b in path]
        stroke = Line(corners, stroke=look.colour, thick=1.6, words=words)
        shapes.append(Area(corners, **paint) if len(path) > 2 else stroke)
    return shapes


def legend(looks: Mapping[str, Look], top: float, width: float) -> tuple[list[Shape], float]:
    """Return the entries in aligned columns that do not leave the picture, and the lower edge.

    It begins at pixel `top` of a picture of `width` pixels.
    """
    if not looks:
        return [], top
    longest = max(text_width(words, SMALL) for words in looks)
    size = SMALL * min(1.0, (width - LEFT - 2 * SWATCH - 6) / longest)
    wide = [2 * SWATCH + 6 + text_width(words, size) + GAP for words in looks]
    columns = len(looks)
    if sum(wide) - GAP > width - LEFT:  # they do not fit in one line
        columns = max(1, int((width - LEFT + GAP) // max(wide)))
        columns = -(-len(looks) // -(-len(looks) // columns))  # as even as they can be
        wide = [max(wide)] * len(looks)
    shapes: list[Shape] = []
    for number, (words, look) in enumerate(looks.items()):
        x, y = LEFT + sum(wide[: number % columns]), top + ENTRY * (number // columns + 0.5)
        if look.mark == "box":
            paint: dict[str, Any] = {"fill": look.colour, "opacity": look.opacity}
            shapes.append(Rect(x + SWATCH / 2, y - SWATCH / 2, SWATCH, SWATCH, **paint))
        if look.dash is not None:
            ends = [(x, y), (x + 2 * SWATCH, y)]
            shapes.append(Line(ends, stroke=look.colour, dash=look.dash))
        if look.mark not in ("", "box"):
            shapes += mark((x + SWATCH, y), look)
        shapes.append(Text(x + 2 * SWATCH + 6, y + 4.5, words, size=size))
    return shapes, top + ENTRY * -(-len(looks) // columns)
