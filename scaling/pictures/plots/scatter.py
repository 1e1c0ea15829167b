"""Predicted over measured numbers, each with its range, beside the line where both agree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.meshes.units import format_time
from scaling.pictures.palette import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.plots.style import numbers_as, picture

# Of groups in turn, told apart without colour too.
MARKS = ("o", "^", "s", "D", "v")
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, BLACK, SKY)
LOOKS = tuple(
    (MARKS[i % len(MARKS)], COLOURS[i % len(COLOURS)]) for i in range(len(MARKS) * len(COLOURS))
)
CROWD = 60  # points of a group from which on they are drawn faintly
MARGIN = 1.5  # factor beside the outermost points
NEAR = 1.2  # the dashed lines: 20 % above and below
WIDE = 300  # largest over least number from which on powers of ten alone are written


@dataclass(frozen=True)
class ScatterPoint:
    """A number that was measured, and its prediction with its range; group: for the legend."""

    group: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None


def plot_scatter(
    points: Sequence[ScatterPoint],
    title: str,
    path: Path,
    words: tuple[str, str] = ("measured", "predicted, with its range"),
    show: Callable[[float], str] = format_time,
) -> None:
    """Draw predicted over measured numbers.

    Args:
        points: at least one.
        title, path: see `plot_bandwidth`.
        words: beside the axes.
        show: a number of the axes as text; the default is that of seconds.

    Raises:
        InputError: there is no point; and see `plot_bandwidth`.
    """
    if not points:
        raise InputError(f"--plot {path}: nothing was both predicted and measured")
    ends = [t for p in points for t in (p.measured, p.low or p.predicted, p.high or p.predicted)]
    least, most = min(ends) / MARGIN, max(ends) * MARGIN
    groups = dict.fromkeys(point.group for point in points)
    with picture(path, size=(8.2, 4.8)) as axes:
        from matplotlib.ticker import LogLocator

        axes.plot([least, most], [least, most], color=BLACK, lw=1, label="equal")
        for factor in (NEAR, 1 / NEAR):
            axes.plot([least, most], [factor * least, factor * most], "--", color=GREY, lw=0.7)
        for number, group in enumerate(groups):
            mark, colour = LOOKS[number % len(LOOKS)]
            own = [point for point in points if point.group == group]
            ranged = [p for p in own if p.low is not None and p.high is not None]
            at = [x for p in ranged for x in (p.measured, p.measured, nan)]
            between = [y for p in ranged for y in (p.low, p.high, nan)]
            axes.plot(at, between, color=BLACK, lw=0.6, alpha=0.25)
            axes.plot([p.measured for p in own], [p.predicted for p in own], mark, color=colour,
                      mec="white", mew=0.4, alpha=0.6 if len(own) > CROWD else 1,
                      label=f"{group} ({len(own)})")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
        axes.set(xlabel=words[0], ylabel=words[1], title=title)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if most / least < WIDE else (1,)))
            numbers_as(axis, show)
        axes.grid()
        axes.figure.legend(loc="outside right upper")
