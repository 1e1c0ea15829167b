"""Pictures of runs, as PNG and SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.report.notebook import COLOURS
from scaling.simulate.memory import ON_DEVICE, memory_over_time
from scaling.simulate.step import Priced

SIZE = (7.0, 4.0)  # inches
DPI = 150
PICTURES = (".png", ".svg", ".pdf")


def plot_bandwidth(answers: Sequence[Any], title: str, path: Path) -> None:
    """Bus bandwidth of a collective against its size, and the bound.

    Args:
        answers: `scaling.simulate.collective.CollectivePrice`s of one collective, by size.
        title: above the picture.
        path: of the picture; its suffix says the format.

    Raises:
        InputError: a suffix that matplotlib does not write, or no such folder.
    """
    figure, axes = figure_with_axes(*SIZE)
    sizes = [a.bytes for a in answers]
    rates = [a.bus_bandwidth / 1e9 for a in answers]
    least = [a.bus_bandwidth * a.time / a.time_high / 1e9 for a in answers]
    most = [a.bus_bandwidth * a.time / a.time_low / 1e9 for a in answers]
    bound = [a.bus_bandwidth * a.time / a.lower_bound / 1e9 for a in answers]
    axes.fill_between(sizes, least, most, alpha=0.2, linewidth=0)
    axes.plot(sizes, rates, "o-", label="predicted")
    axes.plot(sizes, bound, "--", color="black", label="no latency, full bandwidth")
    axes.set(xlabel="bytes", ylabel="bus bandwidth (GB/s)", title=title)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path, "--plot")


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
    figure, axes = figure_with_axes(*SIZE)
    ridge, found = peak / bandwidth, [point.intensity for point in points]
    least, most = min(*found, ridge) / 4, max(*found, ridge) * 4
    blue, _, red, orange = COLOURS[:4]
    axes.plot([least, ridge], [least * bandwidth, peak], color=blue, label="memory")
    axes.plot([ridge, most], [peak, peak], color=red, label="compute")
    ideal, fitted = [p.ideal for p in points], [p.fitted for p in points]
    axes.plot(found, ideal, "o", color="black", mfc="none", label="kernel, textbook")
    axes.plot(found, fitted, "s", color=orange, label="kernel, fitted")
    for point in points:
        where = (point.intensity, point.fitted)
        axes.annotate(point.label, where, (4, -22), fontsize=7, rotation=-40,
                      textcoords="offset points")  # fmt: skip
    axes.set(xlabel="FLOPs per byte", ylabel="FLOP/s", title=title, xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path, "--plot")


def plot_memory(priced: Priced, capacity: float | None, title: str, path: Path) -> None:
    """Bytes of one device over the time of a step, by category, and what it can allocate.

    Args:
        priced: with its timeline recorded.
        capacity: bytes that a program can allocate; None: not known.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    figure, axes = figure_with_axes(*SIZE)
    times, sizes = memory_over_time(priced.memory, priced.timeline.events)
    ends = [*times.tolist(), float(priced.timeline.total)]
    stacks = np.vstack([sizes, sizes[-1:]]).T / 1e9
    names = [name.replace("_", " ") for name in ON_DEVICE]
    axes.stackplot(ends, stacks, labels=names, colors=COLOURS, step="post", linewidth=0)
    if capacity is not None:
        axes.axhline(capacity / 1e9, color="black", linestyle="--", label="capacity")
    axes.set(xlabel="seconds", ylabel="memory of one device (GB)", title=title)
    axes.set_xlim(0, ends[-1])
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, path, "--plot-memory")


def check_picture(option: str, path: Path | None) -> None:
    """Raise InputError for a file that is no picture, before there is anything to draw."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise InputError(f"{option} {path}: end the name with {', '.join(PICTURES)}")


def _save(figure: Any, path: Path, option: str) -> None:
    try:
        figure.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise InputError(f"{option} {path}: cannot write the picture: {error}") from None


def figure_with_axes(width: float, height: float) -> tuple[Any, Any]:
    """An empty matplotlib figure (inches) and its axes; drawn to files, never to a screen.

    A title is shown as it is: dollars in the name of a cluster are no formula.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    with rc_context({"text.parse_math": False}):
        return figure, figure.subplots()
