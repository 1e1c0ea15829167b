"""XLA's count of FLOPs and bytes, and ours, over the count by hand."""

import json
from pathlib import Path

from scaling.pictures.axes import Scale
from scaling.pictures.bars import dots
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, SKY, VERMILION
from scaling.pictures.shapes import Picture, beside

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEAST, MOST = 0.01, 200.0  # of the axis; what is less was not counted
LOOKS = {
    "cost_analysis": Look(VERMILION, "D"),
    "cost_analysis: not counted": Look(VERMILION, "<", hollow=True),
    "our price": Look(BLUE, "o"),
    "our price: not counted": Look(SKY, "<", hollow=True),
}
PANELS = {"flops": "FLOPs", "bytes": "bytes of memory"}


def draw() -> Picture:
    """The newest results of experiments.xla_estimates; a row is empty without a count by hand."""
    folder = sorted(RESULTS.glob("*-xla-estimates"))[-1]
    rows = json.loads((folder / "rows.json").read_text())["rows"]
    scale = Scale(LEAST, MOST, "over the count by hand", "{:g}".format, 10)
    panels = []
    for what, title in PANELS.items():
        marks: dict[str, dict[str, float]] = {row["name"]: {} for row in rows}
        for row in rows:
            for who, words in (("xla", "cost_analysis"), ("our", "our price")):
                if row[what]:
                    ratio = row[f"{who}_{what}"] / row[what]
                    marks[row["name"]][words + ": not counted" * (ratio < LEAST)] = ratio
        used = {w: look for w, look in LOOKS.items() if any(w in row for row in marks.values())}
        panels.append(dots(marks, used, scale, title=title, at=1, width=420))
    return beside("Counts of XLA and ours, over the count by hand", panels, 2)
