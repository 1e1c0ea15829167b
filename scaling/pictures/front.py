"""A Pareto front: money over time, with the memory that is free in colours."""

from collections.abc import Sequence

from scaling.meshes.units import format_dollars, format_time, percent, three_digits
from scaling.pictures.axes import Frame, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import LOOKS
from scaling.pictures.shapes import Picture
from scaling.planning.front import FrontPoint

MARGINS = ((0.3, 1.01), (0.1, 0.3), (0.0, 0.1))  # shares of a device's memory that are free
BILLION = 1e9  # tokens, of both axes


def front(points: Sequence[FrontPoint], title: str) -> Picture:
    """Return the points of a front; where nobody states a price money is device-hours."""
    priced = all(point.price is not None for point in points)
    hours = [BILLION / point.tokens_per_second / 3600 for point in points]
    costs = [
        h * p.devices * (p.price or 0.0 if priced else 1.0)
        for h, p in zip(hours, points, strict=True)
    ]
    show = format_dollars if priced else three_digits
    seconds = [h * 3600 for h in hours]
    x = log_scale(seconds, "time for a billion tokens", format_time)
    what = "dollars" if priced else "device-hours"
    y = log_scale(costs, f"{what} for a billion tokens", show)
    series = {}
    for (low, high), look in zip(MARGINS, LOOKS, strict=False):
        own = [i for i, point in enumerate(points) if low <= point.share < high]
        words = [
            f"{points[i].run.mesh} on {points[i].devices} devices of {points[i].cluster.name}: "
            f"{format_time(seconds[i])}, {show(costs[i])}, {percent(points[i].share)} free"
            for i in own
        ]
        name = f"{low:.0%} to {min(high, 1.0):.0%} of memory is free ({len(own)})"
        if own:
            series[name] = Series(look, [(seconds[i], costs[i]) for i in own], words=words)
    return chart(title, Frame(x, y), series)
