"""The roofline: FLOP/s of kernels over their FLOPs per byte, under the two roofs of a chip.

attainable = min(peak, bandwidth x intensity); the roofs meet at peak / bandwidth
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.units import format_rate
from scaling.pictures.palette import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.plots.style import SMALL, numbers_as, picture
from scaling.simulate.kernels import peak_rate
from scaling.simulate.step import Priced, running_kernels

MARGIN = 4  # factor of intensity beside the outermost kernels
KERNELS = {  # kind of a kernel: words and colour
    "matmul": ("matrix products", ORANGE),
    "grouped": ("experts' products", GREEN),
    "attention": ("attention", PURPLE),
    "fusion": ("elementwise and sums", SKY),
    "custom": ("kernels of libraries", GREY),
}
LEAST_SHARE = 5e-4  # of the kernels' time: a kernel with less of it is left out
LEAST_AREA, AREA, LEGEND_AREA = 8, 600, 40  # square points: of a dot, of all time, in the legend


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


def plot_step_roofline(priced: Priced, title: str, path: Path) -> None:
    """Every kernel of a step under the roofs of its chip; the area of a dot is its share of time.

    The roof of compute is the peak of the format in which most of the products are. Kernels without
    arithmetic, copies among them, have no place; those of hardly any time are left out. Of an
    attention the scores count that its mask leaves.

    Args:
        priced: a program on a cluster.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: no kernel of the step computes; and see `plot_bandwidth`.
    """
    chip, dots = priced.cluster.accelerator, _dots(priced)
    if not dots:
        raise InputError(f"--plot roofline={path}: no kernel of {priced.program.name} computes")
    products: dict[str, float] = defaultdict(float)
    for kernel, calls in running_kernels(priced):
        products[kernel.dtype] += float(kernel.flops * calls)
    dtype = max(products, key=lambda name: products[name])
    peak, fit = peak_rate(chip, dtype), priced.profile.memory
    bandwidth = fit.bandwidth or chip.required("memory_bandwidth")
    total = sum(dot.seconds for dot in dots)
    with picture(path) as axes:
        draw_roofs(axes, [dot.intensity for dot in dots], peak, bandwidth)
        for kind, (words, colour) in KERNELS.items():
            own = [dot for dot in dots if dot.kind == kind]
            share = sum(dot.seconds for dot in own) / total
            label = f"{words}, {share:.0%} of the kernels' time" if own else None
            areas = [LEAST_AREA + AREA * dot.seconds / total for dot in own]
            axes.scatter([d.intensity for d in own], [d.rate for d in own], areas, color=colour,
                         alpha=0.6, linewidths=0.5, edgecolors=BLACK, label=label)  # fmt: skip
        axes.set(title=title)
        legend = axes.legend(loc="lower right")
        for handle in legend.legend_handles[2:]:
            handle.set_sizes([LEGEND_AREA])


@dataclass(frozen=True)
class _Dot:
    kind: str
    intensity: float
    rate: float  # FLOP/s
    seconds: float  # a step


def _dots(priced: Priced) -> list[_Dot]:
    """The kernels that compute, each with all its calls."""
    found: list[_Dot] = []
    for kernel, calls in running_kernels(priced):
        seen = kernel.visible if kernel.kind == "attention" else 1.0
        work = float(kernel.flops * seen + kernel.vector_flops)
        cost = priced.kernels[kernel.name]
        if work and cost.moved:
            where = work / float(cost.moved), work / float(cost.time)
            found.append(_Dot(kernel.kind, *where, float(cost.time * calls)))
    least = LEAST_SHARE * sum(dot.seconds for dot in found)
    return [dot for dot in found if dot.seconds >= least]
