"""A step over time: what every stage computes and sends, and what a device's memory holds.

stage 0   compute        forward ... backward ... optimizer, pale where it has no work
          communication  all-gathers, permutes, ...
"""

import numpy as np

from scaling.meshes.units import format_memory, format_time
from scaling.pictures import palette
from scaling.pictures.axes import Frame, Scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.rows import Bar, Row, shares
from scaling.pictures.shapes import INK, SMALL, Picture, Text, stepped
from scaling.simulate.memory import ON_DEVICE, fullest_moments, memory_over_time
from scaling.simulate.pipeline_bubble import stage_spans
from scaling.simulate.step import Priced

PHASES = {  # of compute, as the program calls them and as legends do
    "forward": "forward",
    "remat": "computed again",
    "backward": "backward",
    "optimizer": "optimizer",
    "": "other compute",
}
WORDS = {**PHASES, "bubble": "no work", "permute": "to the next device"}
COLOURS = {  # of what runs, in the order of the legend
    "forward": BLUE,
    "computed again": SKY,
    "backward": ORANGE,
    "optimizer": GREEN,
    "other compute": GREY,
    "no work": "#eeeeee",
    "communication": PURPLE,
    "to the next device": VERMILION,
}
LANES = {  # pixels of a lane, and below it; the share from which on a column of it is drawn
    "compute": (26.0, 2.0, 0.5),
    "communication": (7.0, 2.0, 0.0),
    "weights": (7.0, 2.0, 0.0),
    "experts": (7.0, 2.0, 0.0),
    "permute": (7.0, 10.0, 0.0),
}
MOST_STAGES = 32  # rows of more are too thin to be read: the first and last ones are drawn
WIDTH = 900.0  # pixels
MOMENTS = 280  # of the memory of a step, one in two pixels: of each the fullest


def timeline(priced: Priced, title: str = "") -> Picture:
    """Return what every stage computes and sends over the time of a step.

    `priced` has its timeline recorded.
    """
    stages = stage_spans(priced)
    shown = list(range(len(stages)))
    if len(shown) > MOST_STAGES:
        shown = [*shown[: MOST_STAGES // 2], *shown[-MOST_STAGES // 2 :]]
    end = max((event.end for event in priced.timeline.events), default=1.0)
    rows: dict[str, Row] = {}
    used = {"compute", "communication", "permute"} | {e.stream for e in priced.timeline.events}
    lanes = {lane: sizes for lane, sizes in LANES.items() if lane in used}
    for stage in shown:
        for lane, sizes in lanes.items():
            name = f"stage {stage}" if len(stages) > 1 else "every device"
            bars = [
                Bar(span.start, span.end, WORDS.get(span.what, "communication"))
                for span in stages[stage]
                if span.stream == lane
            ]
            rows[name if lane == "compute" else f"_{name} {lane}"] = Row(bars, *sizes)
    return shares(rows, COLOURS, end, title, WIDTH)


def step_memory(priced: Priced, capacity: float | None, title: str = "") -> Picture:
    """Return stacked areas of bytes over time by category, and a dashed line at the capacity.

    `priced` has its timeline recorded; `capacity` are bytes that a program can allocate.
    """
    end = float(priced.timeline.total)
    times, sizes = memory_over_time(priced.memory, priced.timeline.events)
    if len(times) > MOMENTS:
        times, sizes = fullest_moments(times, sizes, end, MOMENTS)
    most = max(float(sizes.sum(axis=1).max()), capacity or 0.0) * 1.05
    below, series = np.zeros(len(times)), dict[str, Series]()
    for name, column, colour in zip(ON_DEVICE, sizes.T, palette.COLOURS, strict=True):
        if column.any():
            band = stepped([*times, end], below, below + column)
            series[name.replace("_", " ")] = Series(Look(colour), band=band)
            below = below + column
    names = []
    if capacity is not None:
        series["_fits"] = Series(Look(INK, "", "6 4"), [(0, capacity), (end, capacity)])
        names = [(f"fits below {format_memory(capacity)}", end, capacity)]
    axes = Scale(0, end, "time", format_time), Scale(0, most, "memory", format_memory)
    side = Text(0, -6, "", "end", size=SMALL, halo=True)
    return chart(title, Frame(*axes), series, names, [side])
