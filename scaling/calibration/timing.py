"""Measures the seconds of one operation of a device, without the cost of calling a program.

    program     loop of R iterations:  inputs, result = barrier(inputs, operation(inputs))
    window      several calls, ended by one wait; seconds per operation = window / (calls x R)
    repeats     one window of every case in random order, again and again; each sample's median;
                once more where other processes used the processors meanwhile

The barrier makes every iteration's inputs new to the compiler, which otherwise would run the
operation once, before the loop. Interleaving lets a slow moment of the machine hit all cases alike.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from scaling.profiles.machine import MUCH, OtherLoad, cores
from scaling.profiles.samples import Sample, StepSample

FLOAT = 4  # bytes of fp32
PILOT = 4  # iterations of the first program, which says how many are needed
BLOCK = 2**20  # random numbers that are drawn; larger inputs repeat them
MOST = 10_000  # iterations; a loop whose body costs nothing ends too


@dataclass(frozen=True)
class TimedCase:
    """An operation to be measured: its sample, and how to run it."""

    sample: Sample
    mesh: Mesh
    operation: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]  # of the inputs, on one device
    dtype: Any = jnp.float32
    in_place: bool = False  # the result takes the place of the only input
    shared: bool = False  # takes arrays over all devices, sharded along the first dimension


@dataclass(frozen=True)
class Bench:
    """A compiled case."""

    sample: Sample
    call: Callable[[], Any]
    iterations: int
    calls: int = 1  # in a window


@dataclass(frozen=True)
class Effort:
    """How long to measure, in seconds."""

    call: float  # least time of one call, against the cost of the call itself
    window: float  # least time of a window, against the clock
    repeats: int
    steps: float  # least time of a window of training steps, which run back to back


QUICK = Effort(call=0.005, window=0.02, repeats=5, steps=0.3)
FULL = Effort(call=0.01, window=0.03, repeats=7, steps=1.0)


def measure(
    cases: Sequence[TimedCase],
    effort: Effort,
    progress: Callable[[str], None],
    seed: int = 0,
    ready: Iterable[Bench] = (),
) -> tuple[list[Sample], float]:
    """Measures `cases` and the benches that are `ready`.

    Repeats during which other processes use much of the processors are done again, at most half of
    all; the repeats with the least of that are kept.

    Returns:
        The samples with their seconds, in order, and the largest fraction of the processors that
        other processes used during a repeat that was kept.
    """
    progress(f"compiling {len(cases)} operations, most of them twice")
    benches = [lasting(bench, effort) for bench in [*prepared(cases, effort), *ready]]
    draw, most = random.Random(seed), effort.repeats + effort.repeats // 2
    repeats: list[tuple[float, list[float]]] = []  # (load, seconds of every bench)
    while len(repeats) < most and sum(load <= MUCH for load, _ in repeats) < effort.repeats:
        number = f"repeat {len(repeats) + 1} of {effort.repeats}"
        again = "" if len(repeats) < effort.repeats else " (again: the machine was busy)"
        progress(f"measuring {len(benches)} operations, {number}{again}")
        load = OtherLoad()
        order = draw.sample(range(len(benches)), len(benches))
        seconds = {i: window(benches[i]) for i in order}
        repeats.append((load.share(), [seconds[i] for i in range(len(benches))]))
    kept = sorted(repeats, key=lambda repeat: repeat[0])[: effort.repeats]
    columns = zip(*(seconds for _, seconds in kept), strict=True)
    samples = [replace(b.sample, seconds=s) for b, s in zip(benches, columns, strict=True)]
    return samples, kept[-1][0]


def prepared(cases: Sequence[TimedCase], effort: Effort) -> list[Bench]:
    """Benches with enough iterations for `effort.call`."""
    pilots = _compiled_all([(case, PILOT) for case in cases])
    iterations = []
    for case, pilot in zip(cases, pilots, strict=True):
        needed = math.ceil(effort.call / window(_bench(case, PILOT, pilot)))
        iterations.append(min(MOST, needed) if needed > 2 * PILOT else PILOT)
    long = [(case, n) for case, n in zip(cases, iterations, strict=True) if n > PILOT]
    longer = iter(_compiled_all(long))
    programs = [next(longer) if n > PILOT else p for p, n in zip(pilots, iterations, strict=True)]
    return list(map(_bench, cases, iterations, programs))


def _compiled_all(cases: Sequence[tuple[TimedCase, int]]) -> list[jax.stages.Compiled]:
    """Compiled programs: in parallel on a CPU, one by one for GPUs, which XLA times kernels on."""
    threads = cores() if jax.default_backend() == "cpu" else 1
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda pair: compiled(*pair), cases))


def lasting(bench: Bench, effort: Effort) -> Bench:
    """The bench with as many calls as a window needs."""
    least = effort.steps if isinstance(bench.sample, StepSample) else effort.window
    calls = max(1, math.ceil(least / (window(bench) * bench.iterations)))
    return replace(bench, calls=calls)


def window(bench: Bench) -> float:
    """Seconds of one operation, over one window.

    Fake host devices wait after every call: with several in flight, the threads of one may all be
    held by collectives that wait for the devices of another.
    """
    wait = jax.block_until_ready if jax.default_backend() == "cpu" else lambda results: results
    start = time.perf_counter()
    results = [wait(bench.call()) for _ in range(bench.calls)]
    jax.block_until_ready(results)
    return (time.perf_counter() - start) / (bench.calls * bench.iterations)


def compiled(case: TimedCase, iterations: int) -> jax.stages.Compiled:
    """The program of a case: the operation `iterations` times on every device."""
    program, every = repeated(case.operation, iterations, case.in_place), over_all(case.mesh)
    if not case.shared:
        specs: Any = dict(mesh=case.mesh, in_specs=every, out_specs=every)
        program = jax.shard_map(program, **specs, check_vma=False)
    with jax.set_mesh(case.mesh):
        return jax.jit(program).lower(*inputs(case)).compile()


def repeated(
    operation: Callable[..., Any], iterations: int, in_place: bool = False
) -> Callable[..., Any]:
    """A function that does the operation `iterations` times and returns the last result."""

    def again(_: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        inputs, _result = carry
        return jax.lax.optimization_barrier((inputs, operation(*inputs)))

    def separate(*inputs: jax.Array) -> Any:
        zeros = lambda like: jnp.zeros(like.shape, like.dtype, out_sharding=like.sharding)
        nothing = jax.tree.map(zeros, jax.eval_shape(operation, *inputs))
        return jax.lax.fori_loop(0, iterations, again, (inputs, nothing))[1]

    def same(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, iterations, lambda _, x: operation(x), x)

    return same if in_place else separate


def over_all(mesh: Mesh) -> P:
    """Partition spec that shards the first dimension over all devices."""
    return P(tuple(axis for axis, size in mesh.shape.items() if size > 1))


def inputs(case: TimedCase) -> list[jax.ShapeDtypeStruct]:
    """Shapes over all devices: along the first dimension, device after device."""
    sharding = jax.NamedSharding(case.mesh, over_all(case.mesh))
    shapes = [(case.mesh.size * first, *rest) for first, *rest in case.shapes]
    return [jax.ShapeDtypeStruct(shape, case.dtype, sharding=sharding) for shape in shapes]


def _bench(case: TimedCase, iterations: int, program: jax.stages.Compiled) -> Bench:
    """A bench with its inputs on the devices, warmed up."""
    arrays = [jax.device_put(_values(case, s.shape), s.sharding) for s in inputs(case)]
    jax.block_until_ready(program(*arrays))
    return Bench(case.sample, lambda: program(*arrays), iterations)


def _values(case: TimedCase, shape: tuple[int, ...]) -> np.ndarray:
    """Random inputs: with constant ones a GPU draws less power and runs faster.

    Zeros where results are fed back, which sums of anything else would let grow without end.
    """
    if case.in_place:
        return np.zeros(shape, case.dtype)
    block = np.random.default_rng(0).random(min(math.prod(shape), BLOCK), np.float32)
    return np.resize(block, shape).astype(case.dtype)
