"""Bytes of one device in the course of a step, by category, under what it can allocate."""

import numpy as np

from scaling.meshes.units import format_memory, format_time
from scaling.pictures.axes import Scale, plane
from scaling.pictures.legend import Look, legend
from scaling.pictures.palette import COLOURS
from scaling.pictures.shapes import INK, SMALL, WIDTH, Area, Line, Picture, Shape, Text, staircase
from scaling.simulate.memory import ON_DEVICE, fullest_moments, memory_over_time
from scaling.simulate.step import Priced

MOMENTS = 280  # of a step that are drawn, one in two pixels: of each the fullest


def step_memory(priced: Priced, capacity: float | None, title: str = "") -> Picture:
    """Return stacked areas of bytes over time, and a dashed line at the capacity.

    Args:
        priced: with its timeline recorded.
        capacity: bytes that a program can allocate; None: not known.
    """
    end = float(priced.timeline.total)
    times, sizes = memory_over_time(priced.memory, priced.timeline.events)
    if len(times) > MOMENTS:
        times, sizes = fullest_moments(times, sizes, end, MOMENTS)
    most = max(float(sizes.sum(axis=1).max()), capacity or 0.0) * 1.05
    axes = plane(Scale(0, end, "time", format_time), Scale(0, most, "memory", format_memory))
    names = [name.replace("_", " ") for name in ON_DEVICE]
    used = {n: (s, c) for n, s, c in zip(names, sizes.T, COLOURS, strict=True) if s.any()}
    below, shapes = np.zeros(len(times)), axes.frame()
    for name, (column, colour) in used.items():
        outline = staircase([*times, end], below, below + column)
        below = below + column
        shapes.append(Area(axes.path(outline), colour, words=name))
    if capacity is not None:
        left, right = axes.at(0, capacity), axes.at(end, capacity)
        words = f"fits below {format_memory(capacity)}"
        shapes.append(Line([left, right], INK, 2, "6 4"))
        shapes.append(Text(right[0], right[1] - 6, words, "end", size=SMALL, halo=True))
    looks = {name: Look(colour) for name, (_, colour) in used.items()}
    marks: list[Shape]
    marks, bottom = legend(looks, axes.below, WIDTH)
    return Picture(title, WIDTH, bottom + 8, [*shapes, *marks])
