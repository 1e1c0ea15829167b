"""Bandwidth of a collective over its size: predicted with its range, the bound, what was measured.

bus bandwidth = bytes / time x the factor of nccl-tests, so that the rates of all kinds compare with
a link's
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scaling.meshes.units import format_rate, format_size
from scaling.pictures.axes import Scale, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import LOOKS, Look
from scaling.pictures.palette import BLUE
from scaling.pictures.shapes import INK, Picture, Point

Points = Mapping[str, Sequence[Point]]  # who measured -> (bytes, bytes/s)


def bandwidth(answers: Sequence[Any], title: str, measured: Points | None = None) -> Picture:
    """Return the bus bandwidth of a collective against its size, and the bound.

    Args:
        answers: `scaling.simulate.collective.CollectivePrice`s of one collective, by size.
        measured: points to draw beside, by who measured them.
    """
    measured = measured or {}
    rate = lambda a, seconds: a.bus_bandwidth * a.time / getattr(a, seconds)
    known = [size for points in measured.values() for size, _ in points]
    predicted = [(a.bytes, a.bus_bandwidth) for a in answers]
    bound = [(a.bytes, rate(a, "lower_bound")) for a in answers]
    band = [(a.bytes, rate(a, "time_high"), rate(a, "time_low")) for a in answers]
    series = {
        "predicted": Series(Look(BLUE, "", ""), predicted, band),
        "no latency, full bandwidth": Series(Look(INK, "", "6 4"), bound),
    }
    for (who, points), look in zip(measured.items(), LOOKS[1:], strict=False):
        series[who] = Series(replace(look, hollow=True), points)
    tops = [y for one in series.values() for _, y in [*one.points, *((0, b[2]) for b in one.band)]]
    x = log_scale([*known, *(a.bytes for a in answers)], "size", format_size, base=2)
    return chart(title, x, Scale(0, 1.05 * max(tops), "bus bandwidth", format_rate), series)
