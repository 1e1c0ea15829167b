"""Checks of a run before any device work: what the trainer cannot run is refused by name."""

import math
import re
from collections.abc import Iterator
from typing import Any

from scaling.meshes.errors import InputError, check_range
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import query_key_dim, value_dim
from scaling.optimizers import check_optimizer
from scaling.parallelism.pipeline import TRAINED
from scaling.run import Pipeline, Run, Train

ADA = 8.9  # first compute capability with 8-bit floating point (CUDA C++ guide, tensor cores)
TRAINED_FORMATS = ("bf16", "fp8", "tf32", "fp32")  # of `precision.compute`
NUMBER = re.compile(r"\d+\.\d+")
LARGEST_PROGRAM = 2**31  # bytes of a serialised program: a protocol buffer (protobuf.dev, limits)
LARGEST_SEED = 2**32 - 1  # of grain's shuffle, which takes an unsigned 32-bit seed

Problem = tuple[Any, str, str]  # whether there is one, what it is, what to do instead


def check_trainable(run: Run, mesh: MeshShape, verb: str = "train") -> None:
    """Raise InputError for the first thing in `run` that the trainer does not do.

    Such a run can still be described and priced. `verb` is the command, for the message.
    """
    for problem, fix in _problems(run, mesh):
        raise InputError(f"{verb}: {problem} is not yet trained; {fix}")
    check_optimizer(run)


def check_settings(train: Train) -> None:
    """Raise InputError for training settings that mean nothing."""
    for name in ("steps", "keep_checkpoints", "eval_batches"):
        check_range(f"train.{name}", getattr(train, name), 1)
    for name in ("warmup_steps", "eval_every", "clip_norm", "weight_decay"):
        check_range(f"train.{name}", getattr(train, name), 0)
    check_range("train.checkpoint_every", train.checkpoint_every or 0, 0)
    check_range("train.seed", train.seed, 0, LARGEST_SEED)
    if not 0 < train.learning_rate < math.inf:
        raise InputError(f"train.learning_rate={train.learning_rate} must be positive")


def check_device(run: Run, device: Any) -> None:
    """Raise InputError for a number format that this `jax.Device` has no units for.

    XLA multiplies 8-bit numbers as wider ones there: slower than "bf16", and less exact. A CPU,
    where such a run is tried out, is let off, and so are GPUs that name no number (AMD's: gfx942).
    """
    if run.precision.compute != "fp8" or device.platform != "gpu":
        return
    capability = getattr(device, "compute_capability", "")
    if NUMBER.fullmatch(capability) and float(capability) < ADA:
        raise InputError(
            f"precision.compute='fp8': {device.device_kind} (compute capability {capability}) does "
            f"not multiply 8-bit floating point, which begins with {ADA}; use bf16"
        )


def _problems(run: Run, mesh: MeshShape) -> Iterator[tuple[str, str]]:
    """Pairs of a problem and its fix."""
    for wrong, what, fix in (
        *_stage_problems(run, mesh),
        *_expert_problems(run),
        *_latent_problems(run, mesh),
        *_zero_problems(run, mesh),
        *_number_problems(run),
        *_length_problems(run),
        (run.model.positions == "alibi", "positions 'alibi'", "use rope, learned or none"),
        (run.dropout, f"dropout {run.dropout}", "use 0.0"),
        (run.software != "jax", f"software {run.software!r}", "use jax, which is this trainer"),
    ):
        if wrong:
            yield what, fix


def _stage_problems(run: Run, mesh: MeshShape) -> list[Problem]:
    """Problems of pipelines."""
    if mesh.stage == 1:
        return []
    moe, pipeline = run.model.moe, run.pipeline
    first_dense = moe.first_dense_layers if moe else 0
    return [
        (
            pipeline.schedule not in TRAINED,
            f"pipeline.schedule {pipeline.schedule!r}",
            f"use {', '.join(TRAINED[:-1])} or {TRAINED[-1]}",
        ),
        (
            moe and pipeline != Pipeline(),
            f"a mixture-of-experts model with pipeline.schedule {pipeline.schedule!r}, "
            f"virtual_stages {pipeline.virtual_stages}",
            "use 1f1b and 1",
        ),
        (
            first_dense,
            f"first_dense_layers {first_dense} on mesh axis stage={mesh.stage}",
            "use 0, or the axes data, fsdp, expert, context and tensor",
        ),
    ]


def _expert_problems(run: Run) -> list[Problem]:
    """Problems of mixtures of experts."""
    if run.model.moe is None:
        return []
    fp8 = "a mixture-of-experts model with precision.compute 'fp8'"
    return [
        (run.model.bias, "a mixture of experts with biases", "set bias to false"),
        (run.precision.compute == "fp8", fp8, "use bf16"),
    ]


def _number_problems(run: Run) -> list[Problem]:
    """Problems of number formats."""
    precision = run.precision
    formats = {"parameters": precision.parameters, "gradients": precision.gradients}
    return [
        (
            precision.compute not in TRAINED_FORMATS,
            f"precision.compute {precision.compute!r}",
            f"use {', '.join(TRAINED_FORMATS[:-1])} or {TRAINED_FORMATS[-1]}",
        ),
        *((x != "fp32", f"precision.{name} {x!r}", "use fp32") for name, x in formats.items()),
    ]


def _length_problems(run: Run) -> list[Problem]:
    """Sequences whose rotary tables, float32 [seq_len, head_dim] in all, a program cannot hold."""
    length = run.batch.seq_len
    most = LARGEST_PROGRAM // (4 * query_key_dim(run.model))
    return [
        (
            run.model.positions == "rope" and length > most,
            f"batch.seq_len {length:,}",
            f"use at most {most:,} tokens, whose rotary tables fill the 2 GiB of a program",
        )
    ]


def _zero_problems(run: Run, mesh: MeshShape) -> list[Problem]:
    """Problems of ZeRO stages over fsdp."""
    stage, sharded = run.sharding.zero_stage, mesh.fsdp > 1
    return [
        (
            sharded and stage == 0,
            "sharding.zero_stage 0 over fsdp",
            "use 1 or 3, or the data axis for plain replicas",
        ),
        (
            sharded and stage == 2,
            "sharding.zero_stage 2 over fsdp",
            "use 1 (weights gathered and gradients scattered once per step: least traffic) or 3 "
            "(both for each layer: least memory)",
        ),
    ]


def _latent_problems(run: Run, mesh: MeshShape) -> list[Problem]:
    """Problems of multi-head latent attention."""
    model, name = run.model, "multi-head latent attention"
    if model.mla is None:
        return []
    odd = model.positions == "rope" and model.mla.qk_rope_head_dim % 2
    return [
        (
            mesh.context > 1 and value_dim(model) > query_key_dim(model),
            f"{name} with values longer than keys ({value_dim(model)} > {query_key_dim(model)}) on "
            f"mesh axis context={mesh.context}",
            "use the other axes",
        ),
        (model.bias, f"{name} with biases", "set bias to false"),
        (model.qk_norm, f"{name} with qk_norm", "set qk_norm to false"),
        (
            odd,
            f"{name} with rotary positions on mla.qk_rope_head_dim={model.mla.qk_rope_head_dim}",
            "use an even qk_rope_head_dim",
        ),
    ]
