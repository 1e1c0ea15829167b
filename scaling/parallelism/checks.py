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
ZERO_FIXES = {
    0: "use 1 or 3, or the data axis for plain replicas",
    2: "use 1 (weights gathered and gradients scattered once per step: least traffic) or 3 (both "
    "for each layer: least memory)",
}

Problem = tuple[str, str]  # what the trainer does not do, and what to use instead


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


def _problems(run: Run, mesh: MeshShape) -> Iterator[Problem]:
    yield from _stage_problems(run, mesh)
    yield from _expert_problems(run)
    yield from _latent_problems(run, mesh)
    if mesh.fsdp > 1 and run.sharding.zero_stage in ZERO_FIXES:
        stage = run.sharding.zero_stage
        yield f"sharding.zero_stage {stage} over fsdp", ZERO_FIXES[stage]
    yield from _number_problems(run)
    yield from _length_problems(run)
    if run.model.positions == "alibi":
        yield "positions 'alibi'", "use rope, learned or none"
    if run.dropout:
        yield f"dropout {run.dropout}", "use 0.0"
    if run.software != "jax":
        yield f"software {run.software!r}", "use jax, which is this trainer"


def _stage_problems(run: Run, mesh: MeshShape) -> Iterator[Problem]:
    """Problems of pipelines."""
    if mesh.stage == 1:
        return
    moe, pipeline = run.model.moe, run.pipeline
    schedule = f"pipeline.schedule {pipeline.schedule!r}"
    if pipeline.schedule not in TRAINED:
        yield schedule, f"use {_either(TRAINED)}"
    if moe and pipeline != Pipeline():
        yield (
            f"a mixture-of-experts model with {schedule}, virtual_stages {pipeline.virtual_stages}",
            "use 1f1b and 1",
        )
    if moe and moe.first_dense_layers:
        yield (
            f"first_dense_layers {moe.first_dense_layers} on mesh axis stage={mesh.stage}",
            "use 0, or the axes data, fsdp, expert, context and tensor",
        )


def _expert_problems(run: Run) -> Iterator[Problem]:
    """Problems of mixtures of experts."""
    if run.model.moe and run.model.bias:
        yield "a mixture of experts with biases", "set bias to false"
    if run.model.moe and run.precision.compute == "fp8":
        yield "a mixture-of-experts model with precision.compute 'fp8'", "use bf16"


def _number_problems(run: Run) -> Iterator[Problem]:
    """Problems of number formats."""
    precision = run.precision
    if precision.compute not in TRAINED_FORMATS:
        yield f"precision.compute {precision.compute!r}", f"use {_either(TRAINED_FORMATS)}"
    for name in ("parameters", "gradients"):
        if (form := getattr(precision, name)) != "fp32":
            yield f"precision.{name} {form!r}", "use fp32"


def _length_problems(run: Run) -> Iterator[Problem]:
    """Sequences whose rotary tables, float32 [seq_len, head_dim] in all, a program cannot hold."""
    length, most = run.batch.seq_len, LARGEST_PROGRAM // (4 * query_key_dim(run.model))
    if run.model.positions == "rope" and length > most:
        yield (
            f"batch.seq_len {length:,}",
            f"use at most {most:,} tokens, whose rotary tables fill the 2 GiB of a program",
        )


def _latent_problems(run: Run, mesh: MeshShape) -> Iterator[Problem]:
    """Problems of multi-head latent attention."""
    model, name = run.model, "multi-head latent attention"
    if model.mla is None:
        return
    values, keys = value_dim(model), query_key_dim(model)
    if mesh.context > 1 and values > keys:
        longer = f"values longer than keys ({values} > {keys})"
        yield f"{name} with {longer} on mesh axis context={mesh.context}", "use the other axes"
    if model.bias:
        yield f"{name} with biases", "set bias to false"
    if model.qk_norm:
        yield f"{name} with qk_norm", "set qk_norm to false"
    rotated = model.mla.qk_rope_head_dim
    if model.positions == "rope" and rotated % 2:
        yield (
            f"{name} with rotary positions on mla.qk_rope_head_dim={rotated}",
            "use an even qk_rope_head_dim",
        )


def _either(names: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
