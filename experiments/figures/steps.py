"""Pictures of predicted steps."""

from pathlib import Path

import scaling as sc
from scaling.api.result import PredictionResult
from scaling.pictures.plots import plot_scaling, plot_steps

MESHES = (
    *("fsdp=64", "data=8,fsdp=8", "fsdp=32,tensor=2", "fsdp=8,tensor=8", "data=8,tensor=8"),
    "stage=8,fsdp=8",
)
SETTINGS = {"batch.microbatches": 8, "remat": "selective"}
NODES = (1, 2, 4, 8)
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


def timeline(path: Path) -> None:
    """A pipeline of four stages that runs 1F1B, as compiled."""
    settings = {"remat": "selective", "batch.global_batch": 128, "batch.microbatches": 8}
    where = ("llama3-1b", "dgx-h100", 1, "stage=4,fsdp=2")
    sc.predict(*where, set=settings, source="stored").plot("timeline", path)


def roofline(path: Path) -> None:
    """Every kernel of a compiled step."""
    _one_node("selective").plot("roofline", path)


def memory(path: Path) -> None:
    """Memory of one device over the same step."""
    _one_node("selective").plot("memory", path)


def remat(path: Path) -> None:
    """The same step with other tensors kept for the backward pass."""
    steps = {f"remat={policy}": _one_node(policy) for policy in ("none", "selective", "full")}
    plot_steps(steps, "Llama 3 8B on 8 H100, one sequence each", path)


def scaling(path: Path) -> None:
    """Strong scaling of 64 sequences, weak scaling of 8 a node; compiled programs."""
    curves = {
        "strong": [_on_nodes(nodes, 64) for nodes in NODES],
        "weak": [_on_nodes(nodes, 8 * nodes) for nodes in NODES],
    }
    plot_scaling(curves, "Llama 3 1B, fsdp over 8 to 64 H100", path)


def _one_node(remat: str) -> PredictionResult:
    settings = {"remat": remat, "batch.global_batch": 8, "batch.microbatches": 1}
    return sc.predict("llama3-8b", "dgx-h100", 1, "fsdp=8", set=settings, source="stored")


def _on_nodes(nodes: int, batch: int) -> PredictionResult:
    settings = {"remat": "selective", "batch.global_batch": batch, "batch.microbatches": 1}
    where = ("llama3-1b", "dgx-h100", nodes, f"fsdp={8 * nodes}")
    return sc.predict(*where, set=settings, source="stored")
