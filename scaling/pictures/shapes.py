"""A picture is plain data: a title, a size, and shapes in pixels from the upper left corner.

    picture = Picture("two", 120, 40, (Rect(0, 0, 50, 20, fill=BLUE), Text(60, 15, "words")))
    svg_text(picture)               for a page or a notebook (`svg`), with numpy alone
    write_picture(picture, path)    a file: .svg, .png or .pdf (`files`)

Every picture is a pure function of figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from scaling.pictures.palette import INK_ON

WIDTH = 640.0  # pixels of a picture, unless its content asks for more
FONT, SMALL = 15.0, 13.0  # pixels: of words; of numbers in boxes and what is said beside
TITLE = 34.0  # pixels that a title takes above a picture
INK = "currentColor"  # of lines and words: that of the page, and black in a file
GRID = "#8883"  # a grey that is faint on white and on black
LETTER = 0.6  # width of a letter in the mean, in font sizes

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Painted:
    """How a shape looks.

    Attributes:
        fill, opacity: of its inside.
        stroke, thick, dash: colour and pixels of its edge; dashes as SVG writes them: "6 4".
        words: what the pointer shows.
    """

    fill: str = "none"
    opacity: float = 1.0
    stroke: str = INK
    thick: float = 0.5
    dash: str = ""
    words: str = ""


@dataclass(frozen=True)
class Rect(Painted):
    """A box."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Circle(Painted):
    """A disc, or a ring without a fill."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Line(Painted):
    """A line through points."""

    points: Sequence[Point]
    thick: float = field(default=2.0, kw_only=True)


@dataclass(frozen=True)
class Area(Painted):
    """A polygon."""

    points: Sequence[Point]


@dataclass(frozen=True)
class Text:
    """A line of words; `anchor` is the place of (x, y) on its baseline: start, middle or end."""

    x: float
    y: float
    words: str
    anchor: str = "start"
    colour: str = INK
    size: float = FONT
    turn: float = 0.0  # degrees, clockwise
    halo: bool = False  # read across lines: the colour of the page shines around the words


@dataclass(frozen=True)
class Group:
    """Shapes that are moved together."""

    x: float
    y: float
    shapes: Sequence["Shape"]


Shape = Rect | Circle | Line | Area | Text | Group


@dataclass(frozen=True)
class Picture:
    """Shapes on a page of so many pixels; files write the title above them."""

    title: str
    width: float
    height: float
    shapes: Sequence[Shape]


def text_width(words: str, size: float = FONT) -> float:
    """Return about how many pixels a line of words is wide."""
    return LETTER * size * len(words)


def box(at: Point, size: Point, fill: str, label: str = "", **look: Any) -> list[Shape]:
    """Return a filled box with words in its middle, where they fit; `look` is that of `Rect`."""
    (x, y), (width, height) = at, size
    shapes: list[Shape] = [Rect(x, y, width, height, fill=fill, **look)]
    if label and text_width(label, SMALL) + 2 < width:
        ink, middle = INK_ON.get(fill, "black"), (x + width / 2, y + height / 2 + 4.5)
        shapes.append(Text(*middle, label, "middle", ink, SMALL))
    return shapes


def titled(picture: Picture) -> Picture:
    """Return the picture with its title above, if it has one."""
    if not picture.title:
        return picture
    width = max(picture.width, text_width(picture.title, FONT + 1) + 20)
    title = Text(width / 2, TITLE - 12, picture.title, "middle", size=FONT + 1)
    shapes = (title, Group((width - picture.width) / 2, TITLE, picture.shapes))
    return Picture(picture.title, width, picture.height + TITLE, shapes)


def beside(title: str, pictures: Sequence[Picture], columns: int, gap: float = 20.0) -> Picture:
    """Return one picture of equal panels, so many in a row, each below its own title."""
    panels = [titled(picture) for picture in pictures]
    wide, high = gap + max(p.width for p in panels), gap / 2 + max(p.height for p in panels)
    shapes = [
        Group(i % columns * wide + gap / 2, i // columns * high, panel.shapes)
        for i, panel in enumerate(panels)
    ]
    rows = -(-len(panels) // columns)
    return Picture(title, min(columns, len(panels)) * wide, rows * high, shapes)


def outline(band: Sequence[tuple[float, float, float]]) -> list[Point]:
    """Return the corners of an area from its (x, low, high), from left to right."""
    return [*((x, high) for x, _, high in band), *((x, low) for x, low, _ in reversed(band))]


def stepped(
    borders: Iterable[float], low: Iterable[float], high: Iterable[float]
) -> list[tuple[float, float, float]]:
    """Return (x, low, high) of both ends of each step; `borders` are one more than the steps."""
    steps = zip(pairwise(borders), low, high, strict=True)
    return [(x, down, up) for ends, down, up in steps for x in ends]
