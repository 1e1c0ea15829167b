"""The cases: models, batches and remat policies, as runs; the most telling ones first.

`gpt2-124m` on 1,024-token sequences, and `llama3-1b` (Llama 3.2 1B: 1.24 B parameters, the preset
nearest to 1.3 B) on 2,048 and 4,096; a layer with experts, two with latent attention, and packed
documents. Every run is bf16 with fp32 parameters and AdamW, and flash attention where it does not
say "unfused".
"""

from dataclasses import dataclass, replace
from typing import Literal

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig, with_positions
from scaling.models.presets import preset
from scaling.run import Batch, Run, Train

# A rate that makes the loss of one repeated batch fall within a few steps, after a short warm-up.
TRAIN = Train(steps=1000, learning_rate=3e-4, warmup_steps=5, seed=0)
EXPERTS, LATENT = "mixtral-8x7b (1 layer)", "deepseek-v3 (2 dense layers)"


@dataclass(frozen=True)
class Spec:
    """A case on one device."""

    model: str
    sequences: int
    seq_len: int  # tokens
    remat: Literal["none", "selective", "full"]
    attention: Literal["flash", "unfused"] = "flash"
    documents: Literal["joined", "packed"] = "joined"


# In order of worth. One that does not fit into memory is followed by its half.
ONE_DEVICE = (
    Spec("gpt2-124m", 32, 1024, "none"),
    Spec("llama3-1b", 8, 2048, "selective"),
    Spec("llama3-1b", 16, 2048, "full"),
    Spec("llama3-1b", 8, 4096, "selective"),
    Spec(EXPERTS, 4, 2048, "selective"),
    Spec(LATENT, 4, 4096, "selective"),
    Spec("llama3-1b", 8, 2048, "selective", documents="packed"),
    Spec("gpt2-124m", 32, 1024, "none", "unfused"),
    Spec("llama3-1b", 8, 2048, "none"),
    Spec("gpt2-124m", 64, 1024, "none"),
    Spec("llama3-1b", 32, 2048, "selective"),
    Spec("llama3-1b", 16, 2048, "none"),
    Spec("gpt2-124m", 128, 1024, "none"),
    Spec("gpt2-124m", 128, 1024, "selective"),
    Spec("gpt2-124m", 32, 1024, "full"),
)
SHARED = 4  # of these, on all devices as well
TINY_GPT = ModelConfig(
    256,
    d_model=64,
    n_layers=2,
    n_heads=4,
    d_ff=128,
    mlp="gelu",
    norm="layernorm",
    positions="learned",
    bias=True,
    tied_embeddings=True,
)


def cases(devices: int) -> list[Run]:
    """The runs for a machine with `devices` GPUs: on one, and as fsdp over all of them."""
    alone = [_run(_model(spec.model), spec) for spec in ONE_DEVICE]
    if devices == 1:
        return alone
    usable = 1 << (devices.bit_length() - 1)  # widths and batches are powers of two times little
    shared = [over(run, usable) for run in alone[:SHARED]]
    return [alone[0], *shared, *alone[1:]]


def tiny_cases(devices: int) -> list[Run]:
    """Two toys that take seconds anywhere: one device, then all devices as fsdp."""
    llama = _run(preset("tiny"), Spec("tiny", 4, 32, "selective", documents="packed"))
    gpt = _run(TINY_GPT, Spec("tiny-gpt", 4, 32, "none", "unfused"))
    return [llama, over(gpt, devices)]


def over(run: Run, devices: int) -> Run:
    """The run as fsdp over `devices`, each with the batch that one device had."""
    mesh = MeshShape(fsdp=devices)
    batch = replace(run.batch, global_batch=run.batch.global_batch * devices)
    return replace(run, mesh=mesh, batch=batch)


def halved(run: Run) -> Run | None:
    """The run with half the batch; None where that is not a whole number per device."""
    half, shards = run.batch.global_batch // 2, mesh_of(run).batch_shards
    if run.batch.global_batch % (2 * shards):
        return None
    return replace(run, batch=replace(run.batch, global_batch=half))


def mesh_of(run: Run) -> MeshShape:
    """The mesh of a case, which always names one."""
    if run.mesh is None:
        raise InputError(f"case {run.name}: give it a mesh")
    return run.mesh


def label(run: Run) -> str:
    """A case in a few words: "gpt2-124m 32x1024 none"."""
    words = [run.name, f"{run.batch.global_batch}x{run.batch.seq_len}", str(run.remat)]
    words += ["unfused"] if run.attention == "unfused" else []
    words += ["packed"] if run.train.documents == "packed" else []
    words += [str(run.mesh)] if mesh_of(run).devices > 1 else []
    return " ".join(words)


def _model(name: str) -> ModelConfig:
    """A preset, or those of its layers that one device holds with their optimizer state."""
    if name == EXPERTS:
        return replace(preset("mixtral-8x7b"), n_layers=1)
    if name == LATENT:
        return replace(preset("deepseek-v3"), n_layers=2, moe=None)
    return preset(name)


def _run(model: ModelConfig, spec: Spec) -> Run:
    return Run(
        name=spec.model,
        model=with_positions(model, spec.seq_len),
        batch=Batch(spec.sequences, spec.seq_len),
        mesh=MeshShape(),
        remat=spec.remat,
        attention=spec.attention,
        train=replace(TRAIN, documents=spec.documents),
    )
