"""What runs when: a row for each stream, stage or link, with time to the right.

shares   in each column of pixels the share of time that each kind takes, stacked: a whole step
boxes    a box for each operation: a closer look
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scaling.meshes.units import format_time
from scaling.pictures.axes import Scale, ticks_below
from scaling.pictures.legend import Look, legend
from scaling.pictures.palette import INK_ON
from scaling.pictures.shapes import (
    SMALL,
    WIDTH,
    Area,
    Line,
    Picture,
    Rect,
    Shape,
    Text,
    staircase,
    text_width,
)

RIGHT, TOP = 20.0, 4.0  # pixels right of the rows, and above them
COLUMN = 2.0  # pixels: what is narrower is not seen
HIGH, GAP = 40.0, 8.0  # pixels of a row, and from it to the next


@dataclass(frozen=True)
class Bar:
    """One operation of a row, or a part of it."""

    start: float  # s
    end: float  # s
    kind: str  # decides the colour
    words: str = ""  # what the pointer shows
    label: str = ""  # what is written in the box, if it fits


@dataclass(frozen=True)
class Row:
    """Bars that do not overlap.

    Attributes:
        bars: from left to right.
        high, gap: pixels that they and the space below them take.
        least: of `shares`: a column is filled by the kind that takes most of it, where all take
            more than this share; None: the shares of all kinds are stacked.
    """

    bars: Sequence[Bar]
    high: float = HIGH
    gap: float = GAP
    least: float | None = None


Rows = Mapping[str, Row]  # by the name at the left; names that begin with "_" are not written


def shares(
    rows: Rows, colours: Mapping[str, str], end: float, title: str = "", width: float = WIDTH
) -> Picture:
    """Return rows of stacked areas over the seconds of a step.

    Args:
        rows: from the top.
        colours: by kind, in the order in which a column stacks them.
        end: s, of the step.
        title: above the picture.
        width: pixels of the picture.
    """
    frame = _Frame(rows, 0.0, end, width)
    columns = int(frame.across / COLUMN)
    edges = np.linspace(0.0, end, columns + 1)
    left = frame.left + edges / end * frame.across
    shapes: list[Shape] = []
    for row, base in zip(rows.values(), frame.bases, strict=True):
        below = np.zeros(columns)
        for kind, share in _column_kinds(row, colours, edges).items():
            above = np.minimum(below + share, 1.0)
            total = sum(bar.end - bar.start for bar in row.bars if bar.kind == kind)
            words = f"{kind}: {format_time(total)}, {total / end:.0%} of the step"
            for part in _runs(below, above, row.least is not None):
                heights = base - row.high * below[part], base - row.high * above[part]
                outline = _changes(left[part.start : part.stop + 1], *heights)
                shapes.append(Area(outline, colours[kind], words=words))
            below = above if row.least is None else below
    return frame.picture(title, shapes, colours)


def boxes(
    rows: Rows,
    colours: Mapping[str, str],
    begin: float,
    end: float,
    title: str = "",
    show: bool = True,
) -> Picture:
    """Return a box for each bar between two moments (s); else as `shares`.

    Args:
        rows, colours, title: as of `shares`.
        begin, end: s, of what is shown.
        show: False where time has no unit: there are no numbers below the rows.
    """
    frame = _Frame(rows, begin, end, WIDTH, show)
    shapes: list[Shape] = []
    for row, base in zip(rows.values(), frame.bases, strict=True):
        for bar in row.bars:
            first, last = max(bar.start, begin), min(bar.end, end)
            if last > first:
                x, wide = frame.x(first), frame.x(last) - frame.x(first)
                colour = colours[bar.kind]
                shapes.append(Rect(x, base - row.high, wide, row.high, colour, words=bar.words))
                if bar.label and wide > text_width(bar.label, SMALL) + 4:
                    middle = x + wide / 2, base - row.high / 2 + 4.5
                    ink = INK_ON.get(colour, "black")
                    shapes.append(Text(*middle, bar.label, "middle", ink, SMALL))
    return frame.picture(title, shapes, colours)


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


def _column_kinds(row: Row, colours: Mapping[str, str], edges: np.ndarray) -> dict[str, np.ndarray]:
    """The share of each column that a kind fills, in the order of the colours; [columns]."""
    own = {kind: [bar for bar in row.bars if bar.kind == kind] for kind in colours}
    found = {kind: column_shares(bars, edges) for kind, bars in own.items() if bars}
    if row.least is None or not found:
        return found
    every = np.array(list(found.values()))
    most = np.where(every.sum(axis=0) > row.least, every.argmax(axis=0), -1)
    return {kind: (most == number).astype(float) for number, kind in enumerate(found)}


def _runs(below: np.ndarray, above: np.ndarray, apart: bool) -> list[slice]:
    """All columns at once, or if `apart` each run of neighbours that are filled."""
    if not apart:
        return [slice(0, len(above))]
    borders = np.flatnonzero(np.diff(above > below, prepend=False, append=False))
    return [slice(first, last) for first, last in borders.reshape(-1, 2).tolist()]


def _changes(xs: np.ndarray, below: np.ndarray, above: np.ndarray) -> list[tuple[float, float]]:
    """The outline of columns, without the borders at which neither height changes."""
    moved = (np.abs(np.diff(below)) > 0.05) | (np.abs(np.diff(above)) > 0.05)  # pixels
    kept = np.concatenate([[True], moved])
    return staircase([*xs[:-1][kept], xs[-1]], below[kept], above[kept])


class _Frame:
    """Where the rows stand, and what is written around them."""

    def __init__(self, rows: Rows, begin: float, end: float, width: float, show: bool = True):
        self.rows, self.begin, self.end, self.width, self.show = rows, begin, end, width, show
        names = [name for name in rows if name[:1] != "_"]
        self.left = 14 + max((text_width(name) for name in names), default=0.0)
        self.across = width - self.left - RIGHT
        self.bases, bottom = [], TOP
        for row in rows.values():
            self.bases.append(bottom + row.high)
            bottom += row.high + row.gap

    def x(self, moment: float) -> float:
        return self.left + (moment - self.begin) / (self.end - self.begin) * self.across

    def picture(self, title: str, shapes: Sequence[Shape], colours: Mapping[str, str]) -> Picture:
        base = self.bases[-1] + 4
        scale = Scale(self.begin, self.end, "" if self.show else "time \u2192", format_time,
                      ticks=None if self.show else ())  # fmt: skip
        around = ticks_below(scale, self.left, self.across, TOP, base)
        around.append(Line([(self.left, base), (self.width - RIGHT, base)], width=1))
        for (name, row), bottom in zip(self.rows.items(), self.bases, strict=True):
            if name[:1] != "_":
                y = bottom - row.high / 2 + 5
                around.append(Text(self.left - 8, y, name, "end"))
        used = {bar.kind for row in self.rows.values() for bar in row.bars}
        looks = {kind: Look(colour) for kind, colour in colours.items() if kind in used}
        marks, height = legend(looks, base + (26 if self.show else 44), self.width)
        return Picture(title, self.width, height + 4, [*around, *shapes, *marks])
