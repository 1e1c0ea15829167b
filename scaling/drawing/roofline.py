"""The roofline of a chip: FLOP/s over FLOPs per byte, and what runs below it."""

from collections.abc import Sequence

from scaling.drawing.svg import LINE, Axes, dot, line, log_axes, svg, text
from scaling.report.notebook import COLOURS


def roofline(
    peak: float, bandwidth: float, points: Sequence[tuple[str, float, float]], x_most: float
) -> str:
    """Return the roofline of a chip with points on it.

    Args:
        peak: FLOP/s.
        bandwidth: bytes/s.
        points: name, intensity (FLOPs/byte) and FLOP/s of each.
        x_most: largest intensity that is drawn.
    """
    ridge = peak / bandwidth
    axes = Axes((0.5, x_most), (0.5 * bandwidth / 1e12, 2 * peak / 1e12))
    roof = [axes.at(x, min(peak, x * bandwidth) / 1e12) for x in (0.5, ridge, x_most)]
    shapes = log_axes(axes, "FLOPs per byte", "TFLOP/s")
    shapes.append(line(roof, COLOURS[0]))
    shapes.append(line([axes.at(ridge, axes.y[0]), axes.at(ridge, peak / 1e12)], LINE, "4 4"))
    for (name, intensity, rate), colour in zip(points, COLOURS[2:], strict=False):
        x, y = axes.at(intensity, rate / 1e12)
        shapes += [
            dot(x, y, colour, f"{name}: {rate / 1e12:,.3g} TFLOP/s"),
            text(x + 9, y + 14, name),
        ]
    return svg(shapes)
