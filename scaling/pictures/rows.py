"""Rows with an axis below them: what runs when, parts of a whole, quantities side by side.

boxes    a box for each bar: operations, passes, terms
shares   in each column of pixels the share of time that each kind takes, stacked: a whole step
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from scaling.meshes.units import format_time
from scaling.pictures.axes import AXIS, Scale, ticks_below
from scaling.pictures.legend import Look, legend
from scaling.pictures.shapes import (
    FONT,
    SMALL,
    WIDTH,
    Area,
    Line,
    Picture,
    Rect,
    Shape,
    Text,
    box,
    outline,
    stepped,
    text_width,
)

RIGHT, TOP = 20.0, 4.0  # pixels right of the rows, and above them
COLUMN = 2.0  # pixels: what is narrower is not seen
HIGH, GAP = 40.0, 8.0  # pixels of a row, and from it to the next
LEAST = 240.0  # pixels of a scale
PALE = 0.4  # opacity of what cannot be


@dataclass(frozen=True)
class Bar:
    """One box of a row, such as an operation."""

    start: float
    end: float
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
        note: what stands behind the last bar.
        ends: low and high of a thin line across the bars; None: there is none.
        pale: the bars are those of what cannot be.
    """

    bars: Sequence[Bar]
    high: float = HIGH
    gap: float = GAP
    least: float | None = None
    note: str = ""
    ends: tuple[float, float] | None = None
    pale: bool = False


Rows = Mapping[str, Row]  # by the name at the left; names that begin with "_" are not written


@dataclass(frozen=True)
class Frame:
    """Where rows stand, and what is written around them.

    Attributes:
        sizes: pixels of each row and of the space below it, by name, from the top.
        scale: the axis below; without ticks and name there is none.
        width: pixels of the picture, at least.
        behind: pixels that are left free at the right.
        font: pixels of the names.
    """

    sizes: Mapping[str, tuple[float, float]]
    scale: Scale
    width: float = WIDTH
    behind: float = RIGHT
    font: float = FONT

    @cached_property
    def left(self) -> float:
        """Pixels of the names."""
        names = [text_width(name, self.font) for name in self.sizes if name[:1] != "_"]
        return 16 + max(names, default=0.0)

    @cached_property
    def bases(self) -> list[float]:
        """Pixel of the lower edge of each row."""
        starts = accumulate(map(sum, self.sizes.values()), initial=TOP)
        return [top + high for top, (high, _) in zip(starts, self.sizes.values(), strict=False)]

    @cached_property
    def across(self) -> float:
        """Pixels of the scale; where names and notes leave too little, the picture is wider."""
        return max(LEAST, self.width - self.left - self.behind)

    def x(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.left + self.scale.share(value) * self.across

    def picture(
        self,
        title: str,
        shapes: Sequence[Shape],
        looks: Mapping[str, Look],
        at: float | None = None,
    ) -> Picture:
        """Return the shapes with names, axis and legend, and a dashed line down at a value."""
        base, named, ticks = max(self.bases, default=TOP) + 4, self.scale.name, self.scale.places()
        around: list[Shape] = []
        if named or ticks:
            around = ticks_below(self.scale, self.left, self.across, TOP, base)
            around.append(Line([(self.left, base), (self.left + self.across, base)], thick=1))
        for (name, (high, _)), bottom in zip(self.sizes.items(), self.bases, strict=True):
            if name[:1] != "_":
                y = bottom - high / 2 + 5
                around.append(Text(self.left - 8, y, name, "end", size=self.font))
        top = base + (AXIS if named and ticks else 26 if named or ticks else 6)
        line = [] if at is None else [Line([(self.x(at), 0), (self.x(at), base)], dash="4 4")]
        width = self.left + self.across + self.behind
        marks, height = legend(looks, top, width)
        return Picture(title, width, height + 4, [*around, *shapes, *line, *marks])


def boxes(
    rows: Rows,
    colours: Mapping[str, str],
    scale: Scale,
    title: str = "",
    limit: float | None = None,
) -> Picture:
    """Return a box for each bar, as far as it lies between the ends of the scale.

    Args:
        rows: from the top.
        colours: by kind, in the order of the legend.
        scale: the axis.
        limit: where a dashed line goes down, such as the memory of a device; None: nowhere.
    """
    behind = RIGHT + max((text_width(row.note, SMALL) for row in rows.values()), default=0.0)
    frame = Frame({n: (row.high, row.gap) for n, row in rows.items()}, scale, behind=behind)
    shapes: list[Shape] = []
    used = set()
    for row, base in zip(rows.values(), frame.bases, strict=True):
        x, top, middle = frame.left, base - row.high, base - row.high / 2
        for bar in row.bars:
            if min(bar.end, scale.high) > max(bar.start, scale.low):
                used.add(bar.kind)
                left, x = frame.x(bar.start), frame.x(bar.end)
                size, opacity = (x - left, row.high), PALE if row.pale else 1.0
                look = {"opacity": opacity, "words": bar.words}
                shapes += box((left, top), size, colours[bar.kind], bar.label, **look)
        if row.ends:
            x = max(x, frame.x(row.ends[1]))
            shapes.append(Line([(frame.x(end), middle) for end in row.ends], thick=1.2))
        if row.note:
            shapes.append(Text(x + 6, middle + 5, row.note, size=SMALL, halo=True))
    looks = {kind: Look(colour) for kind, colour in colours.items() if kind in used}
    return frame.picture(title, shapes, looks, limit)


def shares(
    rows: Rows, colours: Mapping[str, str], end: float, title: str = "", width: float = WIDTH
) -> Picture:
    """Return rows of stacked areas over the seconds of a step.

    Args:
        rows: from the top; the times of their bars in seconds.
        colours: by kind, in the order in which a column stacks them.
        end: s, of the step.
        width: pixels of the picture.
    """
    scale = Scale(0.0, end, show=format_time)
    frame = Frame({name: (row.high, row.gap) for name, row in rows.items()}, scale, width)
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
            paint: dict[str, Any] = {"fill": colours[kind], "stroke": "none", "words": words}
            if row.least is None:
                band = stepped(left, base - row.high * below, base - row.high * above)
                shapes.append(Area(outline(band), **paint))
                below = above
            else:
                ends = np.flatnonzero(np.diff(share, prepend=0, append=0))
                for first, last in ends.reshape(-1, 2):
                    size = left[last] - left[first], row.high
                    shapes.append(Rect(left[first], base - row.high, *size, **paint))
    used = {bar.kind for row in rows.values() for bar in row.bars}
    return frame.picture(title, shapes, {k: Look(c) for k, c in colours.items() if k in used})


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
