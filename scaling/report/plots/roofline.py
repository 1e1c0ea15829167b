"""The roofline: FLOP/s of kernels over their FLOPs per byte, under the two roofs of a chip.

attainable = min(peak, bandwidth x intensity); the roofs meet at peak / bandwidth
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.meshes.units import format_rate
from scaling.report.palette import BLACK, BLUE, ORANGE, VERMILION
from scaling.report.plots.style import SMALL, numbers_as, picture

MARGIN = 4  # factor of intensity beside the outermost kernels


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel in a picture of the roofline: FLOP/s over FLOPs per byte."""

    label: str
    intensity: float
    ideal: float
    fitted: float


def plot_roofline(
    points: Sequence[RooflinePoint], peak: float, bandwidth: float, title: str, path: Path
) -> None:
    """FLOP/s of kernels of one chip over their intensity, under its two roofs.

    Args:
        points: at least one.
        peak: FLOP/s, the roof of compute.
        bandwidth: bytes/s, the slope of the roof of memory.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    found = [point.intensity for point in points]
    with picture(path) as axes:
        draw_roofs(axes, found, peak, bandwidth)
        ideal, fitted = [p.ideal for p in points], [p.fitted for p in points]
        axes.plot(found, ideal, "o", color=BLACK, mfc="none", label="kernel, textbook")
        axes.plot(found, fitted, "s", color=ORANGE, label="kernel, fitted")
        for point in points:
            where = (point.intensity, point.fitted)
            axes.annotate(point.label, where, (4, -22), fontsize=SMALL, rotation=-40,
                          textcoords="offset points")  # fmt: skip
        axes.set(title=title)
        axes.legend(loc="lower right")


def draw_roofs(axes: Any, intensities: Sequence[float], peak: float, bandwidth: float) -> None:
    """Draw both roofs around kernels of these intensities, on logarithmic axes."""
    ridge = peak / bandwidth
    least, most = min(*intensities, ridge) / MARGIN, max(*intensities, ridge) * MARGIN
    slope, flat = f"memory, {format_rate(bandwidth)}", f"compute, {format_rate(peak, 'FLOP/s')}"
    axes.plot([least, ridge], [least * bandwidth, peak], color=BLUE, label=slope)
    axes.plot([ridge, most], [peak, peak], color=VERMILION, label=flat)
    axes.set(xlabel="FLOPs per byte", ylabel="FLOP/s", xscale="log", yscale="log")
    numbers_as(axes.xaxis, lambda value: f"{value:,g}")
    numbers_as(axes.yaxis, lambda value: format_rate(value, "").strip())
    axes.grid()
