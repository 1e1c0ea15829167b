"""Predicted over measured times, each with its range, beside the line where both agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.meshes.units import format_time
from scaling.report.palette import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from scaling.report.plots.style import legend_beside, numbers_as, picture

# Of groups in turn, told apart without colour too.
LOOKS = tuple(
    (mark, colour)
    for mark, colours in (
        ("o", (BLUE, ORANGE, GREEN, PURPLE, BLACK)),
        ("^", (VERMILION, SKY, BLACK, BLUE, GREEN)),
        ("s", (PURPLE, BLUE, ORANGE, VERMILION, GREEN)),
    )
    for colour in colours
)
MARGIN = 1.5  # factor beside the outermost points


@dataclass(frozen=True)
class ScatterPoint:
    """A time that was measured, s, and its prediction with its range; group: for the legend."""

    group: str
    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None


def plot_scatter(points: Sequence[ScatterPoint], title: str, path: Path) -> None:
    """Draw predicted over measured times.

    Args:
        points: at least one.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: there is no point; and see `plot_bandwidth`.
    """
    if not points:
        raise InputError(f"--plot {path}: nothing was both predicted and measured")
    ends = [t for p in points for t in (p.measured, p.low or p.predicted, p.high or p.predicted)]
    least, most = min(ends) / MARGIN, max(ends) * MARGIN
    groups = dict.fromkeys(point.group for point in points)
    with picture(path, size=(7.4, 4.8)) as axes:
        axes.plot([least, most], [least, most], color=BLACK, lw=1, label="predicted = measured")
        for number, group in enumerate(groups):
            mark, colour = LOOKS[number % len(LOOKS)]
            own = [point for point in points if point.group == group]
            ranged = [p for p in own if p.low is not None and p.high is not None]
            axes.vlines([p.measured for p in ranged], [p.low for p in ranged],
                        [p.high for p in ranged], color=BLACK, lw=0.6, alpha=0.4)  # fmt: skip
            axes.plot([p.measured for p in own], [p.predicted for p in own], mark, color=colour,
                      mec="white", mew=0.4, label=f"{group} ({len(own)})")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
        axes.set(xlabel="measured", ylabel="predicted, with its range", title=title)
        axes.set_aspect("equal")
        for axis in (axes.xaxis, axes.yaxis):
            numbers_as(axis, format_time)
        axes.grid()
        legend_beside(axes)
