"""Lines in logarithmic axes: how quantities grow, where they cross, and what was measured."""

from collections.abc import Callable, Mapping, Sequence

from scaling.meshes.units import format_size, format_time
from scaling.pictures.axes import Scale, log_scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, COLOURS, SKY, VERMILION
from scaling.pictures.shapes import INK, Picture, Point

DASHES = ("", "6 4")  # of lines with the same colour: the rule, the fit
STEPS = 40  # points of a curve
SPACE = 1.6  # factor of free space around measured points


def curves(
    lines: Sequence[tuple[str, Sequence[Point], int, int]],
    marks: Sequence[tuple[str, float, float]],
    across: str,
    up: str,
    at: float | None = None,
) -> Picture:
    """Return lines in logarithmic axes.

    Args:
        lines: name, points, number of the colour and of the dashes of each.
        marks: name, x and y of points that are named.
        across, up: names of the axes.
        at: x of a vertical line, such as a slider's.
    """
    values = [y for _, points, _, _ in lines for _, y in points]
    xs = [x for _, points, _, _ in lines for x, _ in points]
    x = Scale(min(xs), max(xs), across, base=10)
    y = Scale(min(values) / 1.5, max(values) * 2, up, base=10)
    series = {
        name: Series(Look(COLOURS[colour], "", DASHES[dashes]), points)
        for name, points, colour, dashes in lines
    }
    if at is not None:
        series["_at"] = Series(Look(INK, "", "2 4"), [(at, y.low), (at, y.high)])
    named = [(a, b) for _, a, b in marks]
    series["_marks"] = Series(Look(INK, "o"), named, words=[name for name, _, _ in marks])
    return chart(up, x, y, series, marks)


def sweep(measured: Mapping[int, float], lines: Mapping[str, Callable[[float], float]]) -> Picture:
    """Return measured times over sizes, both logarithmic, with one curve for each line.

    Args:
        measured: bytes -> seconds.
        lines: seconds of bytes, by the names that stand in the legend.
    """
    x = log_scale(measured, "size", format_size, SPACE, base=2)
    low, high = min(measured.values()), max(measured.values())
    y = Scale(low / SPACE**3, high * SPACE, "time", format_time, base=10)
    looks = (BLUE, DASHES[0]), (SKY, DASHES[1])
    at = [x.low * (x.high / x.low) ** (i / STEPS) for i in range(STEPS + 1)]
    series = {
        name: Series(Look(colour, "", dash), [(size, seconds_of(size)) for size in at])
        for (name, seconds_of), (colour, dash) in zip(lines.items(), looks, strict=False)
    }
    words = [f"{size:,} bytes: {1e3 * seconds:.4g} ms" for size, seconds in measured.items()]
    series["measured"] = Series(Look(VERMILION, "o"), list(measured.items()), words=words)
    return chart("time over size", x, y, series)
