"""Whole training steps of small models, which measure the slowdown of kernels within a step.

Alone in a loop a kernel finds its operands in cache. In a step, other kernels and other devices on
the same core have used the cache since. Single kernels do not show that cost; whole steps do, as
one factor for all kernels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from scaling.calibration.timing import Bench
from scaling.compile.options import compile_with, compiler_options
from scaling.meshes.devices import present_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.remat import Remat
from scaling.models.config import ModelConfig
from scaling.profiles.profile import Profile
from scaling.profiles.samples import StepSample
from scaling.program.ir import Program
from scaling.run import Batch, Precision, Run, Train
from scaling.run.optimizers import optimizer_of
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.simulate.resolve import HOST, target
from scaling.simulate.step import price
from scaling.training.execution import execution_on
from scaling.training.running import program_of
from scaling.training.step import (
    Tokens,
    abstract_arguments,
    init_state,
    jitted_step,
)


def reference_runs(devices: int, quick: bool) -> Iterator[Run]:
    """Small models on the meshes that so many devices can have."""
    two = 2 if devices % 2 == 0 else 1
    rest = devices // two
    yield _run(256, 2, 128, devices, MeshShape(fsdp=devices))
    yield _run(192, 3, 64, devices, MeshShape(data=rest, tensor=two))
    if not quick:
        yield _run(512, 2, 64, devices, MeshShape(data=two, fsdp=rest))
        yield _run(320, 2, 64, devices, MeshShape(data=devices), "full")
        yield _run(384, 2, 128, devices, MeshShape(fsdp=rest, tensor=two), "selective")


def _run(
    width: int, layers: int, length: int, devices: int, mesh: MeshShape, remat: Remat = "none"
) -> Run:
    model = ModelConfig(1024, width, layers, n_heads=8, d_ff=4 * width)
    name = f"{layers} layers of {width}, {length} tokens, {mesh}, remat {remat}"
    return Run(
        name=name,
        model=model,
        batch=Batch(2 * devices, length),
        mesh=mesh,
        precision=Precision(compute="fp32"),
        remat=remat,
        train=Train(steps=1),
    )


class Steps:
    """A compiled run; each call is a training step on random tokens."""

    def __init__(self, run: Run):
        self.run = run
        mesh = resolved_mesh(run, None)
        self.mesh = present_mesh(mesh, jax.devices()[: mesh.devices])
        device = self.mesh.devices.flat[0]
        execution = execution_on(device, run, rules_for(run, mesh))
        with jax.set_mesh(self.mesh):
            optimizer = optimizer_of(run)
            state, tokens = abstract_arguments(run, execution)
            lowered = jitted_step(run.train, optimizer).lower(state, tokens)
            self.step = compile_with(lowered, compiler_options(device.platform))
            self.state = jax.jit(lambda: init_state(run.model, execution, run.train, optimizer))()
            shape = (*tokens.inputs.shape[:-1], run.batch.seq_len + 1)
            drawn = np.random.default_rng(0).integers(0, run.model.vocab_size, shape, np.int32)
            place = lambda part: jax.device_put(part, tokens.inputs.sharding)
            self.tokens = Tokens(place(drawn[..., :-1]), place(drawn[..., 1:]))

    def __call__(self) -> Any:
        with jax.set_mesh(self.mesh):
            self.state, metrics = self.step(self.state, self.tokens)
        return metrics

    @property
    def program(self) -> Program:
        """The program of the step."""
        return program_of(self.step, self.mesh, self.run.name)


def step_benches(devices: int, quick: bool) -> Iterator[tuple[Bench, Program, Run]]:
    """Yields the reference runs, compiled and warm, with their programs."""
    for run in reference_runs(devices, quick):
        try:
            steps = Steps(run)
        except InputError:  # so many devices do not divide this model
            continue
        jax.block_until_ready(steps())
        yield Bench(StepSample(run.name, 0.0, 0.0, ()), steps, 1), steps.program, run


def priced_alone(
    samples: Sequence[StepSample],
    programs: Sequence[tuple[Program, Run]],
    profile: Profile,
) -> list[StepSample]:
    """The samples with the seconds that a profile of kernels alone gives them."""
    priced = []
    for sample, (program, run) in zip(samples, programs, strict=True):
        line = price(program, target(run, HOST).cluster, profile).timeline
        alone = float(line.compute + line.optimizer)
        rest = float(line.total - alone)
        priced.append(replace(sample, kernels=alone, rest=rest))
    return priced
