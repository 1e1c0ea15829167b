"""A Pareto front: money over time, with the memory that is free in colours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scaling.meshes.units import format_time
from scaling.pictures.axes import Frame, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import LOOKS
from scaling.pictures.shapes import Picture

MARGINS = ((0.3, 1.01), (0.1, 0.3), (0.0, 0.1))  # shares of a device's memory that are free


@dataclass(frozen=True)
class FrontMark:
    """A configuration of a front."""

    seconds: float
    cost: float
    share: float  # of a device's memory that is free
    words: str


def front(
    marks: Sequence[FrontMark], title: str, names: tuple[str, str], show: Callable[[float], str]
) -> Picture:
    """Return the marks in logarithmic axes.

    Args:
        marks: at least one.
        title: of the picture.
        names: of the axes of time and of cost.
        show: a cost as text.
    """
    x = log_scale([mark.seconds for mark in marks], names[0], format_time)
    y = log_scale([mark.cost for mark in marks], names[1], show)
    series = {}
    for (low, high), look in zip(MARGINS, LOOKS, strict=False):
        own = [mark for mark in marks if low <= mark.share < high]
        words = [f"{m.words}: {format_time(m.seconds)}, {show(m.cost)}" for m in own]
        if own:
            name = f"{low:.0%} to {min(high, 1.0):.0%} of memory is free ({len(own)})"
            series[name] = Series(look, [(m.seconds, m.cost) for m in own], words=words)
    return chart(title, Frame(x, y), series)
