"""Axes of every picture: linear or logarithmic scales with ticks at round numbers, or rows."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scaling.pictures.legend import Look, legend
from scaling.pictures.shapes import (
    GRID,
    SMALL,
    WIDTH,
    Line,
    Picture,
    Point,
    Shape,
    Text,
    text_width,
)

LEAST = 240.0  # pixels of a scale
MOST_TICKS = 8


@dataclass(frozen=True)
class Scale:
    """One axis.

    Attributes:
        low, high: its ends; logarithmic where `base` is given.
        name: what it shows, with its unit if `show` writes none.
        show: a number as text.
        base: of the powers at which a logarithmic axis has ticks, 10 or 2; 0: linear.
        ticks: where these stand; None: at round numbers.
    """

    low: float
    high: float
    name: str = ""
    show: Callable[[float], str] = "{:,.10g}".format
    base: int = 0
    ticks: Sequence[float] | None = None

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1; what lies beyond is at an end."""
        if self.base:
            low, high, value = (math.log(max(v, 1e-300)) for v in (self.low, self.high, value))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))

    def text(self, value: float) -> str:
        """Return a number as it stands beside its tick; nothing needs no unit."""
        return self.show(value) if value else "0"

    def places(self) -> Sequence[float]:
        """Return the numbers at which there is a tick."""
        if self.ticks is not None or self.high <= self.low:
            return (self.low,) if self.ticks is None else self.ticks
        low, high = self.low * (1 - 1e-9), self.high * (1 + 1e-9)
        if self.base:
            first, last = math.ceil(math.log(low, self.base)), math.floor(math.log(high, self.base))
            every = max(1, -(-(last - first + 1) // MOST_TICKS))
            ticks = [float(self.base) ** i for i in range(first, last + 1, every)]
            if self.base == 10 and len(ticks) < 3:
                every_one = [m * 10.0**i for i in range(first - 1, last + 1) for m in (1, 2, 5)]
                ticks = [value for value in every_one if low <= value <= high]
            if len(ticks) > 1:
                return ticks
        least = (high - low) / 7  # the step is 1, 2 or 5 times a power of ten, at least this
        power = 10.0 ** math.floor(math.log10(least))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
        return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_scale(
    values: Iterable[float], name: str, show: Callable[[float], str], room: float = 1.5,
    base: int = 10,
) -> Scale:  # fmt: skip
    """Return a logarithmic axis around values, with a factor of room beside the outermost."""
    values = list(values)
    return Scale(min(values) / room, max(values) * room, name, show, base)


@dataclass(frozen=True)
class Frame:
    """What stands around shapes: a scale below, and at the left another one or names of rows.

    Attributes:
        x, y: the scales. Without ticks and name nothing is written; `y` of rows counts pixels.
        width: pixels of the picture, more where the numbers at the left leave too few.
        high: pixels from the upper edge of the plane to the scale below.
        top, right: pixels above the plane, and right of it.
        font: pixels of what is written at the left.
        grid: False: of rows, which have names and no lines.
    """

    x: Scale
    y: Scale
    width: float = WIDTH
    high: float = 248.0
    top: float = 28.0
    right: float = 24.0
    font: float = SMALL
    grid: bool = True

    @cached_property
    def left(self) -> float:
        """Pixels of what is written at the left."""
        widths = [text_width(self.y.text(value), self.font) for value in self.y.places()]
        return 18 + max(widths, default=0.0)

    @cached_property
    def across(self) -> float:
        """Pixels of the scale below."""
        return max(LEAST, self.width - self.left - self.right)

    def at(self, x: float, y: float) -> Point:
        """Return the pixel of a point."""
        up = self.y.share(y)
        return self.left + self.x.share(x) * self.across, self.top + (1 - up) * self.high

    def path(self, points: Iterable[Point]) -> list[Point]:
        """Return the pixels of points."""
        return [self.at(x, y) for x, y in points]

    def picture(self, title: str, shapes: Sequence[Shape], looks: Mapping[str, Look]) -> Picture:
        """Return the shapes with the scales and their names, above a legend."""
        base, end, ticks = self.top + self.high, self.left + self.across, self.x.places()
        around: list[Shape] = []
        numbers = [(self.left + self.x.share(v) * self.across, self.x.text(v)) for v in ticks]
        for x, _ in numbers:
            around.append(Line([(x, self.top), (x, base)], stroke=GRID, thick=1))
        for x, words in _apart(numbers):
            around.append(Text(x, base + 17, words, "middle", size=SMALL))
        for value in self.y.places():
            y = self.at(self.x.low, value)[1]
            if self.grid:
                around.append(Line([(self.left, y), (end, y)], stroke=GRID, thick=1))
            words = self.y.text(value)
            around.append(Text(self.left - 6, y + self.font / 3, words, "end", size=self.font))
        below = base + (26 if ticks else 6)
        if self.x.name:
            middle, below = (self.left + self.across / 2, below + 10), below + 18
            around.append(Text(*middle, self.x.name, "middle", size=SMALL))
        if ticks or self.x.name:
            line = [(self.left, self.top)] * self.grid + [(self.left, base), (end, base)]
            around.append(Line(line, thick=1))
        if self.y.name:
            around.append(Text(6, self.top - 12, self.y.name, size=SMALL))
        marks, bottom = legend(looks, below, end + self.right)
        return Picture(title, end + self.right, bottom + 6, [*around, *shapes, *marks])


def _apart(numbers: Sequence[tuple[float, str]]) -> Sequence[tuple[float, str]]:
    """Return every number (its middle, its words), or every second, ...: as many as have room."""
    for every in range(1, len(numbers)):
        some = numbers[::every]
        halves = [text_width(words, SMALL) / 2 + 5 for _, words in some]
        ends = zip(some, halves, some[1:], halves[1:], strict=False)
        if all(x + half <= other - wide for (x, _), half, (other, _), wide in ends):
            return some
    return numbers[:1]
