"""Checks of a run before any device work: what the trainer cannot run is refused by name."""

import math
import re
from collections.abc import Iterable
from typing import Any

from scaling.meshes.errors import InputError, check_range
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import query_key_dim
from scaling.models.accounting.remat import kept_by
from scaling.models.lora import check_lora
from scaling.run import OURS, Run
from scaling.run.optimizers import check_optimizer
from scaling.run.parallelism.pipeline import TRAINED

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


def check_trainable(run: Run, mesh: MeshShape, verb: str = "train") -> None:
    """Raise InputError for the first thing in `run` that the trainer does not do.

    Such a run can still be described and priced. `verb` is the command, for the message.
    """
    _check_problems(_problems(run, mesh), verb)
    check_optimizer(run)
    _check_trained(run)


def check_trainable_mesh(run: Run, mesh: MeshShape, verb: str) -> None:
    """Raise InputError for what the trainer does on one device and not on this mesh."""
    alone = {problem for holds, problem, _ in _problems(run, MeshShape()) if holds}
    found = (each for each in _problems(run, mesh) if each[1] not in alone)
    _check_problems(found, verb)


def _check_problems(problems: Iterable[tuple[Any, str, str]], verb: str) -> None:
    for holds, problem, fix in problems:
        if holds:
            raise InputError(f"{verb}: {problem} is not yet trained; {fix}")


def _check_trained(run: Run) -> None:
    """Raise InputError for frozen parameters and adapters that do not go together."""
    train = run.train
    if train.lora is not None:
        check_lora(train.lora, run.model)
    for key, other in (("lora", "freeze"), ("trainable", "freeze")):
        if getattr(train, key) and getattr(train, other):
            raise InputError(
                f"train.{key} and train.{other} are both there: {key} already freezes all others; "
                "name what else is trained in train.trainable"
            )
    if run.precision.frozen != "fp32" and train.trains_all:
        raise InputError(
            f"precision.frozen={run.precision.frozen!r}, but nothing is frozen; leave it out, or "
            "set train.lora, train.freeze or train.trainable"
        )
    if train.ema is not None and not 0 <= train.ema < 1:
        raise InputError(f"train.ema={train.ema} must be at least 0 and below 1, such as 0.999")


def check_settings(run: Run) -> None:
    """Raise InputError for training settings that mean nothing, on any mesh and in any software."""
    _check_trained(run)
    train = run.train
    for name in ("steps", "keep_checkpoints", "eval_batches"):
        check_range(f"train.{name}", getattr(train, name), 1)
    for name in ("warmup_steps", "eval_every", "clip_norm", "z_loss", "weight_decay", "pgle_runs"):
        check_range(f"train.{name}", getattr(train, name), 0)
    check_range("train.checkpoint_every", train.checkpoint_every or 0, 0)
    check_range("train.checkpoint_minutes", train.checkpoint_minutes or 0, 0)
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


def _problems(run: Run, mesh: MeshShape) -> Iterable[tuple[Any, str, str]]:
    """Conditions that are problems, with what the trainer does not do, and what to use instead."""
    model, pipeline, precision, zero = run.model, run.pipeline, run.precision, run.sharding
    moe, mla, staged, rope = model.moe, model.mla, mesh.stage > 1, model.positions == "rope"
    schedule, latent = f"pipeline.schedule {pipeline.schedule!r}", "multi-head latent attention"
    rotated, dense = mla.qk_rope_head_dim if mla else 0, moe.first_dense_layers if moe else 0
    kept = kept_by(run.remat)
    offloaded = kept.offload if kept else ()
    # Rotary tables are float32 [seq_len, head_dim] in all.
    length, most = run.batch.seq_len, LARGEST_PROGRAM // (4 * query_key_dim(model))
    return (
        (staged and pipeline.schedule not in TRAINED, schedule, f"use {_either(TRAINED)}"),
        (
            staged and dense,
            f"first_dense_layers {dense} on mesh axis stage={mesh.stage}",
            "use 0, or the axes data, fsdp, expert, context and tensor",
        ),
        (
            staged
            and offloaded,  # XLA of jax 0.10.2 fails on "gpipe", and copies none in "circular"
            f"remat with {', '.join(offloaded)} offloaded on mesh axis stage={mesh.stage}",
            "keep them on the device, or use the axes data, fsdp, expert, context and tensor",
        ),
        (moe and model.bias, "a mixture of experts with biases", "set bias to false"),
        (mla and model.bias, f"{latent} with biases", "set bias to false"),
        (mla and model.qk_norm, f"{latent} with qk_norm", "set qk_norm to false"),
        (
            rope and rotated % 2,
            f"{latent} with rotary positions on mla.qk_rope_head_dim={rotated}",
            "use an even qk_rope_head_dim",
        ),
        (
            mesh.fsdp > 1 and zero.zero_stage in ZERO_FIXES,
            f"sharding.zero_stage {zero.zero_stage} over fsdp",
            ZERO_FIXES.get(zero.zero_stage, ""),
        ),
        (
            precision.compute not in TRAINED_FORMATS,
            f"precision.compute {precision.compute!r}",
            f"use {_either(TRAINED_FORMATS)}",
        ),
        *(
            (form != "fp32", f"precision.{name} {form!r}", "use fp32")
            for name, form in vars(precision).items()
            if name in ("parameters", "gradients")
        ),
        (
            rope and length > most,
            f"batch.seq_len {length:,}",
            f"use at most {most:,} tokens, whose rotary tables fill the 2 GiB of a program",
        ),
        *(
            (
                run.train.documents == "packed" and size > 1,
                f"train.documents 'packed' on mesh axis {axis}={size}",
                "use the axes data, fsdp, expert and tensor, or documents 'joined'",
            )
            for axis, size in (("stage", mesh.stage), ("context", mesh.context))
        ),
        *(
            (
                getattr(run.train, key) and staged,
                f"train.{key} on mesh axis stage={mesh.stage}",
                "use the axes data, fsdp, expert, context and tensor",
            )
            for key in ("lora", "freeze", "trainable")
        ),
        (
            run.train.lora and run.optimizer not in ("adamw", "lion"),
            f"train.lora with optimizer {run.optimizer!r}, which looks at whole matrices",
            "use adamw or lion",
        ),
        (model.positions == "alibi", "positions 'alibi'", "use rope, learned or none"),
        (run.dropout, f"dropout {run.dropout}", "use 0.0"),
        (run.software != OURS, f"software {run.software!r}", "use jax, which is this trainer"),
    )


def _either(names: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
