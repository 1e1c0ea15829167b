"""Bandwidth of a collective over its size: predicted with its range, the bound, what was measured.

bus bandwidth = bytes / time x the factor of nccl-tests, so that the rates of all kinds compare with
a link's
"""

from collections.abc import Mapping, Sequence
from typing import Any

from scaling.meshes.units import format_rate, format_size
from scaling.pictures.axes import Scale, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.shapes import INK, Picture, Point

Points = Mapping[str, Sequence[Point]]  # who measured -> (bytes, bytes/s)
MARKS = (
    *(("o", VERMILION), ("^", GREEN), ("D", PURPLE), ("s", INK)),
    *(("v", ORANGE), ("D", SKY)),
)  # told apart without colour


def bandwidth(answers: Sequence[Any], title: str, measured: Points | None = None) -> Picture:
    """Return the bus bandwidth of a collective against its size, and the bound.

    Args:
        answers: `scaling.simulate.collective.CollectivePrice`s of one collective, by size.
        title: above the picture.
        measured: points to draw beside, by who measured them.
    """
    measured = measured or {}
    known = {who: (measured[who], look) for who, look in zip(measured, MARKS, strict=False)}
    rate = lambda a, seconds: a.bus_bandwidth * a.time / getattr(a, seconds)
    sizes = [*(a.bytes for a in answers), *(s for points, _ in known.values() for s, _ in points)]
    predicted = [(a.bytes, a.bus_bandwidth) for a in answers]
    bound = [(a.bytes, rate(a, "lower_bound")) for a in answers]
    series = {
        "predicted": Series(
            Look(BLUE, "", ""),
            predicted,
            [(a.bytes, rate(a, "time_high"), rate(a, "time_low")) for a in answers],
        ),
        "no latency, full bandwidth": Series(Look(INK, "", "6 4"), bound),
    }
    for who, (points, (mark, colour)) in known.items():
        series[who] = Series(Look(colour, mark, hollow=True), points)
    tops = [y for one in series.values() for _, y in [*one.points, *((0, b[2]) for b in one.band)]]
    x = log_scale(sizes, "size", format_size, base=2)
    return chart(title, x, Scale(0, 1.05 * max(tops), "bus bandwidth", format_rate), series)
