"""Pictures of runs, as PNG and SVG."""

from typing import Any

SIZE = (7.0, 4.0)  # inches
DPI = 150


def figure_with_axes(width: float, height: float) -> tuple[Any, Any]:
    """An empty matplotlib figure (inches) and its axes; drawn to files, never to a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
