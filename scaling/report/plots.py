"""Pictures of runs, as PNG and SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIZE = (7.0, 4.0)  # inches
DPI = 150


def plot_loss(records: Sequence[dict[str, Any]], title: str, stem: Path) -> list[Path]:
    """Training and held-out loss against the step.

    Args:
        records: lines of `metrics.jsonl`.
        title: above the picture.
        stem: path without suffix; `.png` and `.svg` are written.
    """
    figure, axes = figure_with_axes(*SIZE)
    train = [(r["step"], r["loss"]) for r in records if r.get("loss") is not None]
    held_out = [(r["step"], r["held_out_loss"]) for r in records if "held_out_loss" in r]
    axes.plot(*_columns(train), linewidth=1, label="training")
    axes.plot(*_columns(held_out), "o-", label="held out")
    axes.set(xlabel="step", ylabel="loss (nats per token)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in paths:
        figure.savefig(path, dpi=DPI)
    return paths


def figure_with_axes(width: float, height: float) -> tuple[Any, Any]:
    """An empty matplotlib figure (inches) and its axes; drawn to files, never to a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
