"""Bytes of one device in the course of a step, by category, under what it can allocate."""

from pathlib import Path

import numpy as np

from scaling.meshes.units import format_time
from scaling.pictures.palette import BLACK, COLOURS
from scaling.pictures.plots.style import legend_beside, numbers_as, picture
from scaling.simulate.memory import ON_DEVICE, fullest_moments, memory_over_time
from scaling.simulate.step import Priced

PARTS = 500  # of the step: finer than a pixel on a screen


def plot_memory(
    priced: Priced, capacity: float | None, title: str, path: Path, option: str = "--plot-memory"
) -> None:
    """Bytes of one device over the time of a step, by category, and what it can allocate.

    Args:
        priced: with its timeline recorded.
        capacity: bytes that a program can allocate; None: not known.
        title, path: see `plot_bandwidth`.
        option: that names the file, for messages.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    end = float(priced.timeline.total)
    changes = memory_over_time(priced.memory, priced.timeline.events)
    times, sizes = fullest_moments(*changes, end, PARTS)
    ends = [*times.tolist(), end]
    stacks = np.vstack([sizes, sizes[-1:]]).T / 1e9
    names = [name.replace("_", " ") for name in ON_DEVICE]
    with picture(path, option=option) as axes:
        axes.stackplot(ends, stacks, labels=names, colors=COLOURS, step="post", linewidth=0)
        if capacity is not None:
            axes.axhline(capacity / 1e9, color=BLACK, linestyle="--", label="capacity")
        axes.set(xlabel="time", ylabel="memory of one device (GB)", title=title)
        axes.set_xlim(0, ends[-1])
        numbers_as(axes.xaxis, format_time)
        legend_beside(axes)
