"""A picture is plain data: a title, a size, and shapes in pixels from the upper left corner.

    picture = Picture("two", 120, 40, (Rect(0, 0, 50, 20, BLUE), Text(60, 15, "words")))
    svg_text(picture)               for a page or a notebook (`svg`), with numpy alone
    write_picture(picture, path)    a file: .svg, .png or .pdf (`files`)

Every picture is a pure function of figures. `words` of a shape are what the pointer shows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 640.0  # pixels of a picture, unless its content asks for more
FONT, SMALL = 15.0, 13.0  # pixels: of words; of numbers in boxes and what is said beside
TITLE = 34.0  # pixels that a title takes above a picture
INK = "currentColor"  # of lines and words: that of the page, and black in a file
GRID = "#8883"  # a grey that is faint on white and on black
LETTER = 0.6  # width of a letter in the mean, in font sizes

Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    """A box."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = INK
    line: float = 0.5
    opacity: float = 1.0  # of the fill
    dash: str = ""
    words: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points; `dash` as SVG writes it: "6 4"."""

    points: Sequence[Point]
    colour: str = INK
    width: float = 2.0
    dash: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Area:
    """A filled polygon."""

    points: Sequence[Point]
    fill: str
    opacity: float = 1.0
    stroke: str = "none"
    line: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Circle:
    """A disc, or a ring where `fill` is "none"."""

    x: float
    y: float
    radius: float
    fill: str
    stroke: str = INK
    line: float = 0.5
    opacity: float = 1.0  # of the fill
    words: str = ""


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


Shape = Rect | Line | Area | Circle | Text | Group


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


def staircase(
    borders: Iterable[float], below: Iterable[float], above: Iterable[float]
) -> list[Point]:
    """Return the outline of what lies between two step functions.

    Args:
        borders: of the steps, one more than there are steps.
        below, above: heights of each step.
    """
    xs = list(borders)
    upper = [(x, y) for i, y in enumerate(above) for x in (xs[i], xs[i + 1])]
    lower = [(x, y) for i, y in enumerate(below) for x in (xs[i], xs[i + 1])]
    return [*upper, *reversed(lower)]
