"""Axes of every picture: linear or logarithmic, with ticks at round numbers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scaling.pictures.shapes import GRID, SMALL, Line, Shape, Text, text_width

AXIS = 44.0  # pixels below a picture, of the numbers and the name of an axis
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
            found = [float(self.base) ** i for i in range(first, last + 1, every)]
            if self.base == 10 and len(found) < 3:
                every_one = [m * 10.0**i for i in range(first - 1, last + 1) for m in (1, 2, 5)]
                found = [value for value in every_one if low <= value <= high]
            if len(found) > 1:
                return found
        least = (high - low) / 7  # the step is 1, 2 or 5 times a power of ten, at least this
        power = 10.0 ** math.floor(math.log10(least))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
        return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_scale(
    values: Iterable[float], name: str, show: Callable[[float], str], room: float = 1.5,
    base: int = 10,
) -> Scale:  # fmt: skip
    """Return a logarithmic axis around values, with a factor of room beside the outermost."""
    found = list(values)
    return Scale(min(found) / room, max(found) * room, name, show, base)


def ticks_below(scale: Scale, left: float, width: float, top: float, base: float) -> list[Shape]:
    """Return a grid line for each tick from `top` to `base`, its number below, and the name."""
    shapes: list[Shape] = []
    free = -math.inf  # where the number before ends
    for value in scale.places():
        x, words = left + scale.share(value) * width, scale.text(value)
        shapes.append(Line([(x, top), (x, base)], stroke=GRID, thick=1))
        half = text_width(words, SMALL) / 2
        if x - half > free:
            shapes.append(Text(x, base + 17, words, "middle", size=SMALL))
            free = x + half + 10
    if scale.name:
        down = 36 if scale.places() else 17
        shapes.append(Text(left + width / 2, base + down, scale.name, "middle", size=SMALL))
    return shapes
