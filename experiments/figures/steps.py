"""Pictures of predicted steps."""

import scaling as sc
from scaling.api.result import PredictionResult
from scaling.pictures.bars import step_bars
from scaling.pictures.curves import scaling_curves
from scaling.pictures.shapes import Picture

MESHES = (
    *("fsdp=64", "data=8,fsdp=8", "fsdp=32,tensor=2", "fsdp=8,tensor=8", "data=8,tensor=8"),
    "stage=8,fsdp=8",
)
SETTINGS = {"batch.microbatches": 8, "remat": "selective"}
NODES = (1, 2, 4, 8)
OF_STAGES = {**SETTINGS, "batch.microbatches": 64}  # one sequence each: a bubble of 7 in 71 ticks


def meshes() -> Picture:
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
    return step_bars(ordered, "Llama 3 8B, 4 M tokens a step, 64 x H100")


def timeline() -> Picture:
    """A pipeline of four stages that runs 1F1B, as compiled."""
    settings = {"remat": "selective", "batch.global_batch": 128, "batch.microbatches": 8}
    where = ("llama3-1b", "dgx-h100", 1, "stage=4,fsdp=2")
    step = sc.predict(*where, set=settings, source="stored")
    return step.picture("timeline")


def roofline() -> Picture:
    """Every kernel of a compiled step."""
    step = _one_node("selective")
    return step.picture("roofline")


def memory() -> Picture:
    """Memory of one device over the same step."""
    step = _one_node("selective")
    return step.picture("memory")


def remat() -> Picture:
    """The same step with other tensors kept for the backward pass."""
    steps = {f"remat={policy}": _one_node(policy) for policy in ("none", "selective", "full")}
    return step_bars(steps, "Llama 3 8B on 8 H100, one sequence each")


def scaling() -> Picture:
    """Strong scaling of 64 sequences, weak scaling of 8 a node; compiled programs."""
    curves = {
        "strong": [_on_nodes(nodes, 64) for nodes in NODES],
        "weak": [_on_nodes(nodes, 8 * nodes) for nodes in NODES],
    }
    return scaling_curves(curves, "Llama 3 1B, fsdp over 8 to 64 H100")


def _one_node(remat: str) -> PredictionResult:
    settings = {"remat": remat, "batch.global_batch": 8, "batch.microbatches": 1}
    return sc.predict("llama3-8b", "dgx-h100", 1, "fsdp=8", set=settings, source="stored")


def _on_nodes(nodes: int, batch: int) -> PredictionResult:
    settings = {"remat": "selective", "batch.global_batch": batch, "batch.microbatches": 1}
    where = ("llama3-1b", "dgx-h100", nodes, f"fsdp={8 * nodes}")
    return sc.predict(*where, set=settings, source="stored")
