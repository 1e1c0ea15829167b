"""Drawings as inline SVG text: one size, one palette, readable in light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320  # of the view box, in pixels
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 45  # margins
LABEL = 16  # pixels from one label of a point to the next
LINE = "currentColor"  # of the page, so that axes are seen in light and dark


@dataclass(frozen=True)
class Axes:
    """Logarithmic axes: data -> pixels."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of a point; what lies outside is drawn on the edge."""
        across = _share(x, self.x) * (WIDTH - LEFT - RIGHT) + LEFT
        down = (1 - _share(y, self.y)) * (HEIGHT - TOP - BOTTOM) + TOP
        return across, down


def svg(shapes: Sequence[str], height: int = HEIGHT) -> str:
    """Return an SVG that fills the width of the page, at most its own."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" style="width:100%;max-width:{WIDTH}px" '
        f'font-family="sans-serif" font-size="12">{"".join(shapes)}</svg>'
    )


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = LINE) -> str:
    """Return a line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(words)}</text>"
    )


def line(points: Sequence[tuple[float, float]], colour: str = LINE, dash: str = "") -> str:
    """Return a line through pixels."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'


def dot(x: float, y: float, colour: str, words: str = "") -> str:
    """Return a point with a title that the pointer shows."""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}" stroke="{LINE}">'
        f"<title>{escape(words)}</title></circle>"
    )


def box(x: float, y: float, width: float, height: float, colour: str, words: str = "") -> str:
    """Return a filled rectangle with a title."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" '
        f'fill="{colour}" stroke="{LINE}" stroke-width="0.5"><title>{escape(words)}</title></rect>'
    )


def log_axes(axes: Axes, across: str, up: str) -> list[str]:
    """Return both axes with a tick at each power of ten, and their names."""
    corner = axes.at(axes.x[0], axes.y[0])
    shapes = [line([axes.at(axes.x[0], axes.y[1]), corner, axes.at(axes.x[1], axes.y[0])])]
    for power in _powers(axes.x):
        x, y = axes.at(power, axes.y[0])
        place = "middle" if x < WIDTH - 2 * RIGHT else "end"
        shapes.append(text(x, y + 16, f"{power:,.10g}", place))
    for power in _powers(axes.y):
        x, y = axes.at(axes.x[0], power)
        shapes.append(text(x - 6, y + 4, f"{power:,.10g}", "end"))
    shapes.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, "middle"))
    return [*shapes, text(LEFT + 6, TOP + 10, up)]


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = map(math.log10, ends)
    return min(1.0, max(0.0, (math.log10(max(value, ends[0])) - low) / (high - low)))


def _powers(ends: tuple[float, float]) -> list[float]:
    low, high = math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1]))
    return [10.0**power for power in range(low, high + 1)]
