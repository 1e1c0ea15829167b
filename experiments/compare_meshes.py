"""The README's picture: the step of one model on several meshes of one cluster, as predicted.

    python -m experiments.compare_meshes docs/meshes.svg

Llama 3 8B, 4 M tokens a step, on 64 H100. Each bar is one compiled program; a hatched bar does not
fit in memory, and a line is the prediction's range. Nothing is measured.
"""

import sys
from pathlib import Path

import scaling as sc

MESHES = (
    *("fsdp=64", "data=8,fsdp=8", "fsdp=32,tensor=2", "fsdp=8,tensor=8", "data=8,tensor=8"),
    "stage=8,fsdp=8",
)
SETTINGS = {"batch.microbatches": 8, "remat": "selective"}
OF_STAGES = {**SETTINGS, "batch.microbatches": 64}  # one sequence each: a bubble of 7 in 71 ticks
TERMS = {  # of a step: title and colour (Okabe and Ito, readable without red and green)
    "compute": ("compute", "#0072b2"),
    "exposed_communication": ("waiting for communication", "#e69f00"),
    "bubble": ("pipeline bubble", "#999999"),
    "optimizer": ("optimizer", "#009e73"),
    "host": ("host", "#cc79a7"),
}


def draw(path: Path) -> None:
    """Predict every mesh and draw a bar for each, the fastest that fits first."""
    from matplotlib.figure import Figure

    predictions = {
        mesh: sc.predict(
            *("llama3-8b", "dgx-h100", 8, mesh),
            set=OF_STAGES if "stage" in mesh else SETTINGS,
        )
        for mesh in MESHES
    }
    order = sorted(MESHES, key=lambda mesh: _rank(predictions[mesh]), reverse=True)
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    left = dict.fromkeys(order, 0.0)
    for term, (title, colour) in TERMS.items():
        widths = [getattr(predictions[mesh].time, term) for mesh in order]
        if max(widths) < 0.01 * max(p.step_time for p in predictions.values()):
            continue  # too thin to be seen
        bars = axes.barh(order, widths, left=list(left.values()), color=colour, label=title)
        for bar, mesh in zip(bars, order, strict=True):
            left[mesh] += bar.get_width()
            bar.set_hatch("" if predictions[mesh].memory.fits else "//")
    for row, mesh in enumerate(order):
        p = predictions[mesh]
        fit = "" if p.memory.fits else ", does not fit"
        note = f" {p.step_time:.1f} s, MFU {p.mfu:.0%}, {p.memory.peak / 1e9:.0f} GB{fit}"
        axes.hlines(row, p.step_time_low, p.step_time_high, color="black", linewidth=1)
        axes.text(float(p.step_time_high), row, note, va="center", fontsize=8)
    axes.set_xlim(0, 1.4 * max(float(p.step_time_high) for p in predictions.values()))
    axes.set_xlabel("seconds a step, predicted")
    axes.set_title("Llama 3 8B, 4 M tokens a step, 64 x H100", fontsize=10)
    axes.legend(fontsize=8, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def _rank(prediction: "sc.Prediction") -> tuple[bool, float]:
    return not prediction.memory.fits, float(prediction.step_time)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/meshes.svg"))
