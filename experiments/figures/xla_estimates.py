"""XLA's count of FLOPs and bytes, and ours, over the count by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling.pictures.palette import BLACK, BLUE, VERMILION
from scaling.pictures.plots.style import SMALL, numbers_as, picture

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEAST, MOST = 0.01, 200.0  # of the axis; no ratio lies beyond
BESIDE = 0.17  # of a line: the two marks do not hide each other


def draw(path: Path) -> None:
    """Draw the newest results of experiments.xla_estimates."""
    folder = sorted(RESULTS.glob("*-xla-estimates"))[-1]
    rows = json.loads((folder / "rows.json").read_text())["rows"]
    with picture(path, size=(8.2, 4.6), ncols=2, sharey=True) as both:
        for axes, name in zip(both, ("flops", "bytes"), strict=True):
            _panel(axes, rows, name)
        both[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
        both[0].invert_yaxis()
        both[0].set_title("FLOPs")
        both[1].set_title("bytes of memory")
        lines, words = both[0].get_legend_handles_labels()
        both[0].figure.legend(lines, words, loc="outside lower center", ncols=3)


def _panel(axes: Any, rows: Sequence[Mapping[str, Any]], name: str) -> None:
    """One count of every program; where nothing was counted by hand the line is empty."""
    axes.axvline(1, color=BLACK, lw=1, label="by hand")
    counted = [(at, row) for at, row in enumerate(rows) if row[name]]
    looks = (("xla", VERMILION, "D", "cost_analysis"), ("our", BLUE, "o", "our price"))
    for shift, (who, colour, mark, words) in zip((-BESIDE, BESIDE), looks, strict=True):
        known = [(at, row[f"{who}_{name}"] / row[name]) for at, row in counted]
        shown = [(at + shift, ratio) for at, ratio in known if ratio >= LEAST]
        axes.plot([x for _, x in shown], [y for y, _ in shown], mark, color=colour, label=words)
        for at in (at + shift for at, ratio in known if ratio < LEAST):
            axes.plot([LEAST], [at], "<", color=colour, clip_on=False)
            axes.text(1.3 * LEAST, at, "not counted", va="center", fontsize=SMALL, color=colour)
    axes.set(xscale="log", xlim=(LEAST, MOST), xlabel="over the count by hand")
    numbers_as(axes.xaxis, lambda ratio: f"{ratio:g}")
    axes.grid(axis="x")
