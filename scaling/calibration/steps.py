"""Whole programs on a CPU: what training steps and calls cost besides their kernels alone.

    step        of a small model: the slowdown of kernels within it
    buffers     of a call: n arguments go in, n results come out
    temporary   a large array, filled and read again, that no other call has left behind

The bytes that a called program touches and its temporary memory are read from its compiled text, as
for programs that are priced.

Alone in a loop a kernel finds its operands in cache. In a step, other kernels and other devices on
the same core have used the cache since. Single kernels do not show that cost; whole steps do, as
one factor for all kernels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from scaling.calibration.timing import FLOAT, Bench, over_all
from scaling.compile.options import compile_with, compiler_options
from scaling.hlo.reader import read_program
from scaling.meshes.devices import present_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.remat import Remat
from scaling.models.config import ModelConfig
from scaling.profiles.profile import Profile
from scaling.profiles.samples import DispatchSample, StepSample
from scaling.program.ir import Program, kernels
from scaling.run import Batch, Precision, Run, Train
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.simulate.resolve import HOST, target
from scaling.simulate.step import buffers_of, price, temporaries
from scaling.training.execution import execution_on
from scaling.training.running import program_of
from scaling.training.step import Tokens, abstract_arguments, init_state, jitted_step

# glibc gives blocks above this size back to the system when they are freed, smaller ones not
# always (mallopt(3), DEFAULT_MMAP_THRESHOLD_MAX on 64-bit systems).
KEPT = 32 * 2**20  # bytes
BUFFERS_QUICK, BUFFERS_FULL = (1, 32), (1, 8, 32, 128)
SIZES_QUICK, SIZES_FULL = (40 * 2**20, 80 * 2**20), tuple(i * 2**20 for i in (40, 64, 96, 128))
WIDTH = 128  # elements of a small argument


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
    return Run(
        name=f"{layers} layers of {width}, {length} tokens, {mesh}, remat {remat}",
        model=ModelConfig(1024, width, layers, n_heads=8, d_ff=4 * width),
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
            state, tokens = abstract_arguments(run, execution)
            lowered = jitted_step(run).lower(state, tokens)
            self.step = compile_with(lowered, compiler_options(device.platform))
            self.state = jax.jit(lambda: init_state(run, execution))()
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
    samples: Sequence[StepSample], programs: Sequence[tuple[Program, Run]], profile: Profile
) -> list[StepSample]:
    """The samples with the seconds that a profile of kernels alone gives them."""
    priced = []
    for sample, (program, run) in zip(samples, programs, strict=True):
        line = price(program, target(run, HOST).cluster, profile).timeline
        alone = float(line.compute + line.optimizer)
        priced.append(replace(sample, kernels=alone, rest=float(line.total - alone)))
    return priced


def dispatch_benches(mesh: Mesh, quick: bool) -> Iterator[Bench]:
    """Yields programs with several numbers of buffers and amounts of temporary memory."""
    for count in BUFFERS_QUICK if quick else BUFFERS_FULL:
        yield _bench(mesh, lambda *xs: [x + 1.0 for x in xs], count)
    for size in SIZES_QUICK if quick else SIZES_FULL:
        yield _bench(mesh, partial(_fill, size), 1)


def _fill(size: int, x: jax.Array) -> list[jax.Array]:
    """A result that takes `size` bytes of temporary memory: filled, changed in place, read."""
    large = jnp.broadcast_to(x[0], (size // FLOAT // WIDTH, WIDTH))
    large = jax.lax.fori_loop(0, 2, lambda _, y: y + 1.0, large)
    return [large.min(axis=0)]


def _bench(mesh: Mesh, operation: Callable[..., list[jax.Array]], count: int) -> Bench:
    """Compiles and warms up a program; its sample states what it touches."""
    every = over_all(mesh)
    sharding = jax.NamedSharding(mesh, every)
    inputs = [jax.device_put(jnp.ones(WIDTH * mesh.size), sharding) for _ in range(count)]
    with jax.set_mesh(mesh):
        program = jax.jit(jax.shard_map(operation, mesh=mesh, in_specs=every, out_specs=every))
        compiled = program.lower(*inputs).compile()
    jax.block_until_ready(compiled(*inputs))
    priced = read_program(compiled.as_text() or "", dict(mesh.shape), "call")
    touched = sum(kernel.bytes * calls for kernel, calls in kernels(priced))
    temporary = temporaries(priced)
    fresh = temporary if temporary > KEPT else 0.0
    sample = DispatchSample(buffers_of(priced), float(touched), float(fresh), ())
    return Bench(sample, lambda: compiled(*inputs), 1)
