"""What runs when on the streams of a device: a whole step, and a closer look at a part of it.

whole step    in each column of pixels the share of time that each kind takes, stacked
closer look   a box for each operation
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from scaling.meshes.units import format_time
from scaling.pictures.drawing.svg import LINE, RIGHT, WIDTH, box, line, svg, text

NAME, ROW, BAR, TOP = 100, 48, 40, 6  # pixels: names, a row, what is drawn in it, above the rows
FONT = 16
COLUMNS = 260  # of two pixels each: narrower ones are not seen
SWATCH, ENTRY, LETTER = 14, 25, 9.2  # pixels of a legend: square, line, letter in the mean
ACROSS = WIDTH - NAME - RIGHT  # pixels of the time


@dataclass(frozen=True)
class Bar:
    """One operation of a row, or a part of it."""

    start: float  # s
    end: float  # s
    kind: str  # decides the colour
    words: str = ""  # what the pointer shows


Rows = Mapping[str, Sequence[Bar]]


def whole_step(rows: Rows, colours: Mapping[str, str], end: float) -> str:
    """Return rows of stacked areas over the seconds of a step.

    Args:
        rows: by name, from the top; the bars of a row do not overlap.
        colours: by kind, in the order in which a column stacks them.
        end: s, of the step.
    """
    edges = np.linspace(0.0, end, COLUMNS + 1)
    shapes = []
    for number, bars in enumerate(rows.values()):
        below = np.zeros(COLUMNS)
        for kind, colour in colours.items():
            own = [bar for bar in bars if bar.kind == kind]
            if own:
                above = np.minimum(below + column_shares(own, edges), 1.0)
                total = sum(bar.end - bar.start for bar in own)
                words = f"{kind}: {format_time(total)}, {total / end:.0%} of the step"
                shapes.append(_area(below, above, TOP + number * ROW, colour, words))
                below = above
    return _framed(shapes, rows, colours, "0", format_time(end))


def closer_look(rows: Rows, colours: Mapping[str, str], begin: float, end: float) -> str:
    """Return a box for each bar between two moments (s); arguments as of `whole_step`."""
    scale = ACROSS / (end - begin)
    shapes = []
    for number, bars in enumerate(rows.values()):
        for bar in bars:
            left, right = max(bar.start, begin), min(bar.end, end)
            if right > left:
                place = NAME + (left - begin) * scale, TOP + number * ROW, (right - left) * scale
                shapes.append(box(*place, BAR, colours[bar.kind], bar.words))
    return _framed(shapes, rows, colours, f"from {format_time(begin)}", f"to {format_time(end)}")


def column_shares(bars: Sequence[Bar], edges: np.ndarray) -> np.ndarray:
    """Share of the time between neighbouring edges that the bars cover; [columns]."""
    starts = np.sort([bar.start for bar in bars])
    ends = np.sort([bar.end for bar in bars])
    return np.diff(_before(ends, edges) - _before(starts, edges)) / np.diff(edges)


def _before(moments: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Negative sum of max(edge - moment, 0) over the sorted moments, for each edge."""
    count = np.searchsorted(moments, edges)
    sums = np.concatenate([[0.0], np.cumsum(moments)])
    return sums[count] - count * edges


def _area(below: np.ndarray, above: np.ndarray, top: float, colour: str, words: str) -> str:
    """Stacked columns between two heights, shares of the row."""
    left = NAME + np.arange(COLUMNS + 1) * ACROSS / COLUMNS
    base = top + BAR
    upper = [(x, base - BAR * y) for i, y in enumerate(above) for x in (left[i], left[i + 1])]
    lower = [(x, base - BAR * y) for i, y in enumerate(below) for x in (left[i], left[i + 1])]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*upper, *reversed(lower)])
    return f'<polygon points="{points}" fill="{colour}"><title>{escape(words)}</title></polygon>'


def _framed(
    shapes: Sequence[str], rows: Rows, colours: Mapping[str, str], first: str, last: str
) -> str:
    """The shapes with names of rows, an axis and a legend."""
    base = TOP + len(rows) * ROW
    names = [
        text(NAME - 10, TOP + i * ROW + BAR / 2 + 5, name, "end") for i, name in enumerate(rows)
    ]
    axis = [
        line([(NAME, base), (WIDTH - RIGHT, base)], LINE),
        text(NAME, base + 18, first),
        text(WIDTH - RIGHT, base + 18, last, "end"),
    ]
    used = [kind for kind in colours if any(b.kind == kind for bars in rows.values() for b in bars)]
    marks, height = legend({kind: colours[kind] for kind in used}, base + 46)
    return svg([f'<g font-size="{FONT}">', *shapes, *names, *axis, *marks, "</g>"], height)


def legend(colours: Mapping[str, str], top: float) -> tuple[list[str], int]:
    """Return squares with words in lines that do not leave the drawing, and the lower edge."""
    shapes, x, y = [], 10.0, top
    for kind, colour in colours.items():
        width = SWATCH + 6 + LETTER * len(kind) + 18
        if x + width > WIDTH and x > 10:
            x, y = 10.0, y + ENTRY
        shapes += [box(x, y - SWATCH + 2, SWATCH, SWATCH, colour), text(x + SWATCH + 6, y, kind)]
        x += width
    return shapes, round(y + ENTRY / 2)
