"""Pictures of predicted steps."""

from pathlib import Path

import scaling as sc
from scaling.report.plots import plot_steps

MESHES = (
    *("fsdp=64", "data=8,fsdp=8", "fsdp=32,tensor=2", "fsdp=8,tensor=8", "data=8,tensor=8"),
    "stage=8,fsdp=8",
)
SETTINGS = {"batch.microbatches": 8, "remat": "selective"}
OF_STAGES = {**SETTINGS, "batch.microbatches": 64}  # one sequence each: a bubble of 7 in 71 ticks


def meshes(path: Path) -> None:
    """The step of one model on six meshes of one cluster, compiled; the fastest that fits first."""
    predictions = {
        mesh: sc.predict(
            *("llama3-8b", "dgx-h100", 8, mesh),
            set=OF_STAGES if "stage" in mesh else SETTINGS,
        )
        for mesh in MESHES
    }
    rank = lambda mesh: (not predictions[mesh].memory.fits, float(predictions[mesh].step_time))
    ordered = {mesh: predictions[mesh] for mesh in sorted(MESHES, key=rank)}
    plot_steps(ordered, "Llama 3 8B, 4 M tokens a step, 64 x H100", path)
