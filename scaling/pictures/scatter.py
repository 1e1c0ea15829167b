"""Predicted over measured numbers, each with its range, beside the line where both agree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scaling.meshes.units import format_time
from scaling.pictures.axes import log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import LOOKS, Look
from scaling.pictures.palette import GREY
from scaling.pictures.shapes import INK, Picture

CROWD = 60  # points of a group from which on they are drawn faintly
NEAR = 1.2  # the dashed lines: 20 % above and below
HEIGHT = 460.0  # pixels


@dataclass(frozen=True)
class ScatterPoint:
    """A number that was measured, and its prediction with its range; group: for the legend."""

    group: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None


def scatter(
    points: Sequence[ScatterPoint],
    title: str,
    words: tuple[str, str] = ("measured", "predicted, with its range"),
    show: Callable[[float], str] = format_time,
) -> Picture:
    """Return predicted over measured numbers.

    Args:
        points: at least one.
        words: beside the axes.
        show: a number of the axes as text; the default is that of seconds.
    """
    ends = [t for p in points for t in (p.measured, p.low or p.predicted, p.high or p.predicted)]
    x = log_scale(ends, words[0], show)
    line = lambda factor: [(x.low, factor * x.low), (x.high, factor * x.high)]
    series = {
        "equal": Series(Look(INK, "", ""), line(1)),
        "20 % above and below": Series(Look(GREY, "", "6 4"), line(NEAR)),
        "_below": Series(Look(GREY, "", "6 4"), line(1 / NEAR)),
    }
    for number, group in enumerate(dict.fromkeys(point.group for point in points)):
        own = [point for point in points if point.group == group]
        look = LOOKS[number % len(LOOKS)]
        series[f"{group} ({len(own)})"] = Series(
            replace(look, opacity=0.6) if len(own) > CROWD else look,
            [(p.measured, p.predicted) for p in own],
            ranges=[
                (p.measured, p.low, p.high) for p in own if p.low is not None and p.high is not None
            ],
        )
    return chart(title, x, replace(x, name=words[1]), series, height=HEIGHT)
