"""Checks of a run before any device work: what the trainer cannot run is refused by name."""

import math
import re
from collections.abc import Iterator
from typing import Any

from scaling.meshes.errors import InputError, check_fields, reworded
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import layer_reaches, query_key_dim
from scaling.models.accounting.remat import AUTO, kept_by
from scaling.models.lora import check_lora
from scaling.run import OURS, Run
from scaling.run.optimizers import check_optimizer
from scaling.run.parallelism.pipeline import RUNS_AS
from scaling.run.parallelism.rules import rules_for, weight_axes, zero_stage
from scaling.run.parallelism.sequence import attended_model
from scaling.run.reference import reference_run, stores_reference

ADA = 8.9  # first compute capability with 8-bit floating point (CUDA C++ guide, tensor cores)
TRAINED_FORMATS = ("bf16", "fp8", "tf32", "fp32")  # of `precision.compute`
NUMBER = re.compile(r"\d+\.\d+")
LARGEST_PROGRAM = 2**31  # bytes of a serialised program: a protocol buffer (protobuf.dev, limits)
NOT_NEGATIVE = (  # settings of `train`
    *("warmup_steps", "eval_every", "clip_norm", "z_loss", "weight_decay", "pgle_runs"),
    *("checkpoint_every", "checkpoint_minutes", "watchdog_minutes"),
)
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
    for problem, fix in _problems(run, mesh):
        raise InputError(f"{verb}: {problem} is not yet trained; {fix}")
    check_optimizer(run)
    _check_trained(run)
    if reference := reference_run(run):
        with reworded("train.loss: its frozen model: "):
            check_trainable(reference, mesh, verb)
            rules_for(reference, mesh)


def check_trainable_mesh(run: Run, mesh: MeshShape, verb: str) -> None:
    """Raise InputError for what the trainer does on one device and not on this mesh."""
    alone = set(_problems(run, MeshShape()))
    for problem, fix in _problems(run, mesh):
        if (problem, fix) not in alone:
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
    if run.precision.frozen != "fp32" and train.trains_all and not stores_reference(run):
        raise InputError(
            f"precision.frozen={run.precision.frozen!r}, but nothing is frozen; leave it out, or "
            "set train.lora, train.freeze, train.trainable or train.loss"
        )
    if train.ema is not None and not 0 <= train.ema < 1:
        raise InputError(f"train.ema={train.ema} must be at least 0 and below 1, such as 0.999")


def check_settings(run: Run) -> None:
    """Raise InputError for training settings that mean nothing, on any mesh and in any software."""
    _check_trained(run)
    has = {"mla_up_proj": run.model.mla, "moe_act": run.model.moe}
    if lacking := [module for module in run.recompute if not has.get(module, True)]:
        raise InputError(
            f"recompute={[*run.recompute]}: the model {run.name} has no {lacking[0]} (mla_up_proj "
            "is of latent attention, moe_act of experts); leave it out"
        )
    if run.precision.dispatch == "fp8" and run.precision.compute != "fp8":
        raise InputError(
            "precision.dispatch='fp8' sends tokens as products in fp8 take them, and precision."
            f"compute is {run.precision.compute!r}; set precision.compute=fp8, or leave it out"
        )
    train = run.train
    check_fields(train, ("steps", "keep_checkpoints", "eval_batches"), 1, where="train.")
    check_fields(train, NOT_NEGATIVE, 0, where="train.")
    check_fields(train, ("seed",), 0, LARGEST_SEED, "train.")
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
    """What the trainer does not do, each with what to use instead."""
    model, precision, train, stage = run.model, run.precision, run.train, mesh.stage
    moe, mla, zero, schedule = model.moe, model.mla, zero_stage(run, mesh), run.pipeline.schedule
    on_stages = f"on mesh axis stage={stage}"
    unstaged = "the axes data, fsdp, expert, context and tensor"
    if stage > 1 and schedule not in RUNS_AS:
        yield f"pipeline.schedule {schedule!r}", f"use {_either(tuple(RUNS_AS))}"
    if stage > 1 and run.pipeline.layers != "even":
        yield f"pipeline.layers {run.pipeline.layers!r} {on_stages}", "use even"
    if stage > 1 and moe and moe.first_dense_layers:
        yield f"first_dense_layers {moe.first_dense_layers} {on_stages}", f"use 0, or {unstaged}"
    patterns = stage * run.pipeline.virtual_stages * model.pattern_length
    if stage > 1 and model.pattern_length > 1 and model.n_layers % patterns:
        problem = f"{model.n_layers} layers in patterns of {model.pattern_length} {on_stages}"
        fix = "use as many stages, of pipeline.virtual_stages each, as share whole patterns out"
        yield problem, f"{fix}, or {unstaged}"
    part, length = run.batch.seq_len // (2 * mesh.context), run.batch.seq_len
    reaches = [reach for reach in layer_reaches(attended_model(run)) if reach.is_cut(length)]
    wrong = [reach.chunk for reach in reaches if reach.chunk and part % reach.chunk]
    if mesh.context > 1 and wrong:
        problem = f"attention_chunk {max(wrong)} on mesh axis context={mesh.context}"
        yield (
            problem,
            f"use chunks that divide a device's parts of {part} tokens, or whole sequences",
        )
    kept = None if run.remat == AUTO else kept_by(run.remat)
    if stage > 1 and kept and kept.offload:
        problem = f"remat with {', '.join(kept.offload)} offloaded {on_stages}"
        yield problem, f"keep them on the device, or use {unstaged}"
    if moe and model.bias and moe.n_shared_experts:
        yield "shared experts with biases", "set bias to false, or n_shared_experts to 0"
    latent = "multi-head latent attention"
    if mla and model.bias:
        yield f"{latent} with biases", "set bias to false"
    if mla and model.sinks:
        yield f"{latent} with sinks", "set sinks to false"
    if mla and model.qk_norm:
        yield f"{latent} with qk_norm", "set qk_norm to false"
    if mla and model.positions == "rope" and mla.qk_rope_head_dim % 2:
        rotary = f"rotary positions on mla.qk_rope_head_dim={mla.qk_rope_head_dim}"
        yield f"{latent} with {rotary}", "use an even qk_rope_head_dim"
    shards = [axis for axis in weight_axes(run, mesh) if getattr(mesh, axis) > 1]
    if shards and zero in ZERO_FIXES:
        yield f"sharding.zero_stage {zero} over {', '.join(shards)}", ZERO_FIXES[zero]
    if precision.compute not in TRAINED_FORMATS:
        yield f"precision.compute {precision.compute!r}", f"use {_either(TRAINED_FORMATS)}"
    for name in ("parameters", "gradients"):
        if (dtype := getattr(precision, name)) != "fp32":
            yield f"precision.{name} {dtype!r}", "use fp32"
    # Rotary tables are float32 [seq_len, head_dim] in all.
    length, most = run.batch.seq_len, LARGEST_PROGRAM // (4 * query_key_dim(model))
    if model.positions == "rope" and length > most:
        fix = f"use at most {most:,} tokens, whose rotary tables fill the 2 GiB of a program"
        yield f"batch.seq_len {length:,}", fix
    if train.pairs and train.documents == "packed":
        yield "dpo with train.documents 'packed'", "use joined: a sequence holds one answer"
    if train.pairs and train.z_loss:
        yield f"dpo with train.z_loss {train.z_loss}", "use 0"
    if train.lora and run.optimizer not in ("adamw", "lion"):
        problem = f"train.lora with optimizer {run.optimizer!r}, which looks at whole matrices"
        yield problem, "use adamw or lion"
    if model.positions == "alibi":
        yield "positions 'alibi'", "use rope, learned or none"
    if run.dropout:
        yield f"dropout {run.dropout}", "use 0.0"
    if run.software != OURS:
        yield f"software {run.software!r}", "use jax, which is this trainer"


def _either(names: tuple[str, ...]) -> str:
    """`a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
