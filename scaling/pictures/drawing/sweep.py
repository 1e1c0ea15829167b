"""Drawing of a sweep: measured times over sizes, and the line alpha + V / W beside them."""

from collections.abc import Callable, Mapping

from scaling.pictures.drawing.svg import Axes, dot, line, log_axes, svg, text
from scaling.pictures.palette import COLOURS

STEPS = 40  # points of a curve
SPACE = 1.6  # factor of free space around the measured points


def sweep(measured: Mapping[int, float], lines: Mapping[str, Callable[[float], float]]) -> str:
    """Return times over sizes, both logarithmic, with one curve for each line.

    Args:
        measured: bytes -> seconds.
        lines: seconds of bytes, by the names that stand in the drawing.
    """
    sizes = [size / 2**20 for size in measured]
    times = [1e3 * seconds for seconds in measured.values()]
    axes = Axes(
        (min(sizes) / SPACE, max(sizes) * SPACE), (min(times) / SPACE**3, max(times) * SPACE)
    )
    shapes = log_axes(axes, "MiB", "ms")
    for number, (name, seconds_of) in enumerate(lines.items()):
        at = [axes.x[0] * (axes.x[1] / axes.x[0]) ** (i / STEPS) for i in range(STEPS + 1)]
        curve = [axes.at(mib, 1e3 * seconds_of(mib * 2**20)) for mib in at]
        shapes.append(line(curve, COLOURS[number], "6 4" * (number > 0)))
        x, y = axes.at(axes.x[1], axes.y[0])
        shapes.append(text(x - 8, y - 12 - 18 * number, name, "end", COLOURS[number]))
    for size, seconds in measured.items():
        x, y = axes.at(size / 2**20, 1e3 * seconds)
        shapes.append(dot(x, y, COLOURS[2], f"{size:,} bytes: {1e3 * seconds:.4g} ms"))
    return svg(shapes)
