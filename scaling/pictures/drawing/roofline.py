"""The roofline of a chip: FLOP/s over FLOPs per byte, and what runs below it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from scaling.pictures.drawing.streams import FONT, legend
from scaling.pictures.drawing.svg import HEIGHT, LINE, Axes, dot, line, log_axes, svg, text
from scaling.pictures.palette import COLOURS

LARGEST = 70.0  # pixels: radius of a point that takes all of the time
LEAST = 1.6  # pixels: radius from which on a point is seen
INTENSITIES = (0.01, 3e4)  # FLOPs per byte that are drawn; others lie on the edge
DECADES = 5  # of FLOP/s below twice the peak


@dataclass(frozen=True)
class Point:
    """A kernel below the roof."""

    words: str  # what the pointer shows
    intensity: float  # FLOPs per byte of the device memory
    rate: float  # FLOP/s
    share: float  # of all kernels' time
    kind: str  # decides the colour


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


def roofline_of_kernels(
    peak: float, bandwidth: float, points: Sequence[Point], colours: Mapping[str, str]
) -> str:
    """Return the roofline of a chip with every kernel on it, its area by its share of the time.

    Args:
        peak, bandwidth: FLOP/s and bytes/s of the chip.
        points: the kernels; those with the most time are drawn first, below the others.
        colours: by kind.
    """
    low, high = INTENSITIES
    roof_end = 2 * peak / 1e12
    axes = Axes(INTENSITIES, (roof_end / 10**DECADES, roof_end))
    ridge = peak / bandwidth
    roof = [axes.at(x, min(peak, x * bandwidth) / 1e12) for x in (low, ridge, high)]
    shapes = log_axes(axes, "FLOPs per byte", "TFLOP/s")
    for point in sorted(points, key=lambda point: -point.share):
        x, y = axes.at(point.intensity, point.rate / 1e12)
        radius = max(LEAST, LARGEST * math.sqrt(point.share))
        shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colours[point.kind]}" '
            f'fill-opacity="0.6" stroke="{LINE}" stroke-width="0.5">'
            f"<title>{escape(point.words)}</title></circle>"
        )
    shapes.append(line(roof, LINE))
    used = {kind: c for kind, c in colours.items() if any(p.kind == kind for p in points)}
    marks, height = legend(used, HEIGHT + 20)
    return svg([f'<g font-size="{FONT}">', *shapes, *marks, "</g>"], height)
