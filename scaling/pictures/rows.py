"""Rows with an axis below them: what runs when, parts of a whole, quantities side by side.

boxes    a box for each bar: operations, passes, terms
shares   in each column of pixels the share of time that each kind takes, stacked: a whole step
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from scaling.meshes.units import format_time
from scaling.pictures.axes import Frame, Scale
from scaling.pictures.legend import Look
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


def row_frame(
    sizes: Mapping[str, tuple[float, float]],
    scale: Scale,
    width: float = WIDTH,
    right: float = RIGHT,
    font: float = FONT,
) -> tuple[Frame, list[float]]:
    """Return the frame of rows, and the pixel below its upper edge at which each row begins.

    Args:
        sizes: pixels of each row and of the space below it, by name, from the top.
        scale: the axis below; without ticks and name there is none.
    """
    *tops, high = accumulate(map(sum, sizes.values()), initial=0.0)
    named = zip(sizes.items(), tops, strict=True)
    names = {top + row / 2: name for (name, (row, _)), top in named if name[:1] != "_"}
    y = Scale(high, 0.0, show=names.__getitem__, ticks=list(names))
    return Frame(scale, y, width, high, TOP, right, font, grid=False), tops


def boxes(
    rows: Rows,
    colours: Mapping[str, str],
    scale: Scale,
    title: str = "",
    limit: float | None = None,
) -> Picture:
    """Return a box for each bar, as far as it lies between the ends of the scale.

    Args:
        colours: by kind, in the order of the legend.
        limit: where a dashed line goes down, such as the memory of a device; None: nowhere.
    """
    right = RIGHT + max((text_width(row.note, SMALL) for row in rows.values()), default=0.0)
    sizes = {name: (row.high, row.gap) for name, row in rows.items()}
    frame, tops = row_frame(sizes, scale, right=right)
    shapes: list[Shape] = []
    used = set()
    for row, top in zip(rows.values(), tops, strict=True):
        end, middle = frame.left, frame.top + top + row.high / 2
        for bar in row.bars:
            if min(bar.end, scale.high) > max(bar.start, scale.low):
                used.add(bar.kind)
                start, (end, _) = frame.path([(bar.start, top), (bar.end, top)])
                size, opacity = (end - start[0], row.high), PALE if row.pale else 1.0
                look = {"opacity": opacity, "words": bar.words}
                shapes += box(start, size, colours[bar.kind], bar.label, **look)
        if row.ends:
            line = frame.path((value, top + row.high / 2) for value in row.ends)
            shapes.append(Line(line, thick=1.2))
            end = max(end, line[1][0])
        if row.note:
            shapes.append(Text(end + 6, middle + 5, row.note, size=SMALL, halo=True))
    if limit is not None:
        shapes.append(Line(frame.path([(limit, 0.0), (limit, frame.high)]), dash="4 4"))
    looks = {kind: Look(colour) for kind, colour in colours.items() if kind in used}
    return frame.picture(title, shapes, looks)


def shares(
    rows: Rows, colours: Mapping[str, str], end: float, title: str = "", width: float = WIDTH
) -> Picture:
    """Return rows of stacked areas over the seconds of a step.

    Args:
        colours: by kind, in the order in which a column stacks them.
        end: s, of the step.
    """
    sizes = {name: (row.high, row.gap) for name, row in rows.items()}
    frame, tops = row_frame(sizes, Scale(0.0, end, show=format_time), width)
    columns = int(frame.across / COLUMN)
    edges = np.linspace(0.0, end, columns + 1)
    left = frame.left + edges / end * frame.across
    shapes: list[Shape] = []
    for row, top in zip(rows.values(), tops, strict=True):
        below, base = np.zeros(columns), frame.top + top + row.high
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
    spans = np.array(sorted((bar.start, bar.end) for bar in bars))  # [bars, 2]
    covered = np.diff(spans, prepend=spans[:, :1]).cumsum()  # up to each start and end
    return np.diff(np.interp(edges, spans.ravel(), covered)) / np.diff(edges)


def _column_kinds(row: Row, colours: Mapping[str, str], edges: np.ndarray) -> dict[str, np.ndarray]:
    """The share of each column that a kind fills, in the order of the colours; [columns]."""
    own = {kind: [bar for bar in row.bars if bar.kind == kind] for kind in colours}
    found = {kind: column_shares(bars, edges) for kind, bars in own.items() if bars}
    if row.least is None or not found:
        return found
    every = np.array(list(found.values()))
    most = np.where(every.sum(axis=0) > row.least, every.argmax(axis=0), -1)
    return {kind: (most == number).astype(float) for number, kind in enumerate(found)}
