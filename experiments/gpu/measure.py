"""One case: compile the training step as the trainer does, predict it, run it, time it, look at its
memory, and record a profile of some steps.

tokens/s = tokens per step / step time
MFU      = model FLOPs per step / (step time x devices x dense bf16 peak)
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.gpu.cases import mesh_of
from experiments.gpu.machine import LOAD, memory, nvidia_smi, short
from experiments.gpu.predicted import (
    Guess,
    as_dict,
    beside_recording,
    counts,
    errors,
    guesses,
    shortened,
)
from experiments.gpu.raw import RECORDED, keep_program, record
from experiments.gpu.timing import THOROUGH, Effort, time_windows
from scaling.compile.options import compile_with, compiler_options
from scaling.meshes.devices import present_mesh
from scaling.models.accounting import count_parameters, model_flops
from scaling.models.execution import Execution
from scaling.profiles.profile import Profile
from scaling.run import Batch, Run
from scaling.run.parallelism.rules import rules_for
from scaling.training.execution import execution_on
from scaling.training.step import (
    Tokens,
    TrainState,
    abstract_state,
    abstract_tokens,
    init_state,
    jitted_step,
)

FLASH_CALL = 'custom_call_target="__cudnn$fmha'  # XLA's name for cuDNN's fused attention
MEMORY_PARTS = ("argument_size", "output_size", "temp_size", "alias_size")  # + "_in_bytes"


@dataclass(frozen=True)
class Program:
    """A compiled training step. Use it under its mesh."""

    step: jax.stages.Compiled
    execution: Execution
    seconds: float  # to lower and compile
    note: str = ""


class Trainer:
    """A state that each call moves one step on, always with the same tokens."""

    def __init__(self, program: Program, state: TrainState, tokens: Tokens):
        self.program, self.state, self.tokens = program, state, tokens
        self.losses: list[jax.Array] = []  # before each step, still on the device

    def __call__(self) -> TrainState:
        self.state, metrics = self.program.step(self.state, self.tokens)
        self.losses.append(metrics["loss"])
        return self.state


def measure(
    run: Run,
    devices: list[jax.Device],
    effort: Effort = THOROUGH,
    profiles: Mapping[str, Profile] | None = None,
    raw: Path | None = None,
) -> dict[str, Any]:
    """Train `run` for some steps on the first devices that its mesh needs, in a process of its own.

    Args:
        run: a case; its mesh says how many of `devices` are used.
        devices: those present.
        effort: how long and how often to measure.
        profiles: efficiencies to predict the step with, before it runs, by name.
        raw: a folder for the program, its text and a profile of `RECORDED` steps; None: not kept.
    """
    devices = devices[: mesh_of(run).devices]
    with trainer(run, devices) as train:
        step = train.program.step
        guess = guesses(step, jax.sharding.get_mesh(), run, profiles or {})
        program = next((g[0].program for g in guess.values() if not isinstance(g, str)), None)
        timed = time_windows(train, effort)
        load = _under_load(train, timed.calls)
        losses = [float(loss) for loss in train.losses]
        found = {
            **_sizes(run),
            "attention": train.program.execution.attention_kernel,
            "flash_calls": flash_calls(train.program.step),
            "note": train.program.note,
            "compile_seconds": train.program.seconds,
            "step_time": {**timed.as_dict(), "warm_up_calls": effort.warm_up},
            "tokens_per_second": run.batch.tokens / timed.median,
            "memory": _memory(step, devices),
            "predicted": {name: as_dict(g) for name, g in guess.items()},
            "counts": None if program is None else counts(program),
            "compared": {},
            "loss": {
                "first": _finite(losses[0]),
                "last": _finite(losses[-1]),
                "steps": len(losses),
            },
            "loss_falls": bool(np.isfinite(losses).all() and losses[-1] < losses[0]),
            "under_load": load,
        }
        if raw is not None:
            keep_program(raw, step, program)
            (raw / "measured.json").write_text(json.dumps(found))  # should the profiler break
            found["compared"] = _compared(train, guess, raw)
        return found


def _compared(train: Trainer, guess: Mapping[str, Guess], raw: Path) -> dict[str, Any]:
    """Each prediction beside a profile of `RECORDED` steps, which the raw data keep whole."""
    try:
        record(train, raw)
    except Exception as error:  # where nobody may profile, the rest has been measured
        return {name: {"error": short(error)} for name in guess}
    compared = {name: beside_recording(g, raw, RECORDED) for name, g in guess.items()}
    (raw / "compared.json").write_text(json.dumps(compared))
    return {name: shortened(each) for name, each in compared.items()}


@contextmanager
def trainer(run: Run, devices: list[jax.Device]) -> Iterator[Trainer]:
    """The compiled step of `run` with a fresh state, under the run's mesh over `devices`."""
    rules = rules_for(run, mesh_of(run))
    execution = execution_on(devices[0], run, rules)
    with jax.set_mesh(present_mesh(mesh_of(run), devices)):
        program = compile_step(run, execution, devices[0].platform)
        yield Trainer(program, fresh_state(run, program.execution), random_tokens(run, execution))


def compile_step(run: Run, execution: Execution, platform: str) -> Program:
    """The step as the trainer compiles it; with XLA's attention where cuDNN's does not compile."""
    start = time.perf_counter()
    try:
        step = _compiled(run, execution, platform)
    except Exception as error:
        if execution.attention_kernel != "cudnn" or is_out_of_memory(error):
            raise
        plain = compile_step(run, replace(execution, attention_kernel="xla"), platform)
        note = f"cuDNN attention did not compile, XLA's stands in: {short(error)}"
        return replace(plain, note=note)
    return Program(step, execution, time.perf_counter() - start)


def fresh_state(run: Run, execution: Execution) -> TrainState:
    """The initial state. Its numbers depend on neither remat nor attention: one program makes it
    for all of them, and only the static part of its tree is the case's own."""
    plain = replace(execution, remat="none", attention_kernel="xla")
    same: Any = dict(precision=run.precision, optimizer=run.optimizer, train=run.train)
    leaves = jax.tree.leaves(_init(Run("", run.model, Batch(1, 1), **same), plain))
    return jax.tree.unflatten(jax.tree.structure(abstract_state(run, execution)), leaves)


_init = jax.jit(init_state, static_argnums=(0, 1))


def random_tokens(run: Run, execution: Execution) -> Tokens:
    """One step's tokens, uniform over the vocabulary, by the run's seed; packed: two documents."""
    is_packed = run.train.documents == "packed"
    like = abstract_tokens(run.batch, execution, is_packed)
    length = run.batch.seq_len
    shape = (*like.inputs.shape[:-1], length + 1)
    tokens = np.random.default_rng(run.train.seed).integers(
        0, run.model.vocab_size, shape, np.int32
    )
    parts = [tokens[..., :-1], tokens[..., 1:]]
    if is_packed:
        documents = np.where(np.arange(length) < length // 2, 1, 2).astype(np.int32)
        parts += [np.broadcast_to(documents, parts[0].shape), np.ones(parts[0].shape, np.float32)]
    placed = zip(parts, jax.tree.leaves(like), strict=True)
    return Tokens(*(jax.device_put(part, leaf.sharding) for part, leaf in placed))


def with_rates(case: dict[str, Any], peak: float | None, matmul: float | None) -> dict[str, Any]:
    """A measured case beside what the chip could do at best.

    Args:
        case: the result of `measure`.
        peak: dense bf16 FLOP/s of one device; None: not known, and then neither is the MFU.
        matmul: FLOP/s of a large matrix product, measured on one device.
    """
    rate = case["model_flops"] / case["step_time"]["median"] / case["devices"]
    return {
        **case,
        "flops_per_second_per_device": rate,
        "mfu": rate / peak if peak else None,
        "of_matmul": rate / matmul if matmul else None,
        "errors": {name: errors(guess, case) for name, guess in case["predicted"].items()},
    }


def flash_calls(step: jax.stages.Compiled) -> int:
    """Calls of cuDNN's attention in the program text; the body of the layer scan counts once:
    one call forward, one backward, one more forward under remat "full"."""
    return (step.as_text() or "").count(FLASH_CALL)


def is_out_of_memory(error: BaseException) -> bool:
    """True if the device had no room: XLA's status, or its allocator's words."""
    return "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower()


def _sizes(run: Run) -> dict[str, Any]:
    return {
        "devices": mesh_of(run).devices,
        "parameters": count_parameters(run.model).total,
        "tokens_per_step": run.batch.tokens,
        "model_flops": model_flops(run.model, run.batch.global_batch, run.batch.seq_len),
    }


def _compiled(run: Run, execution: Execution, platform: str) -> jax.stages.Compiled:
    state = abstract_state(run, execution)
    tokens = abstract_tokens(run.batch, execution, run.train.documents == "packed")
    lowered = jitted_step(run).lower(state, tokens)
    return compile_with(lowered, compiler_options(platform))


def _memory(step: jax.stages.Compiled, devices: list[jax.Device]) -> dict[str, Any]:
    """Bytes on the fullest device: what the compiler plans, what the allocator saw at most."""
    plan, seen = step.memory_analysis(), memory(devices)
    compiled = {name: getattr(plan, f"{name}_in_bytes", None) for name in MEMORY_PARTS}
    compiled["peak"] = getattr(plan, "peak_memory_in_bytes", None)
    return {"compiled": compiled, "peak_in_use": seen.get("peak_bytes_in_use")}


def _finite(value: float) -> float | None:
    """JSON has no word for infinities and NaN."""
    return value if math.isfinite(value) else None


def _under_load(train: Trainer, calls: int) -> list[dict[str, str]] | None:
    """Clocks, power and temperature while steps run; the window is not timed."""
    for _ in range(calls):
        made = train()
    load = nvidia_smi(LOAD)
    jax.block_until_ready(made)
    return load
