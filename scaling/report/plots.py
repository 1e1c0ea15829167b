"""Pictures of runs, as PNG and SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError

SIZE = (7.0, 4.0)  # inches
DPI = 150


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
    try:
        figure.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise InputError(f"--plot {path}: cannot write the picture: {error}") from None


def figure_with_axes(width: float, height: float) -> tuple[Any, Any]:
    """An empty matplotlib figure (inches) and its axes; drawn to files, never to a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
