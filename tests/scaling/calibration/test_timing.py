"""One operation's seconds: what is timed stands in the loop, and windows are long enough."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from scaling.calibration import timing
from scaling.calibration.cases import attention_cases, collective_cases, matmul_cases, memory_cases
from scaling.calibration.sizes import HOST_QUICK, Sizes
from scaling.calibration.timing import (
    Bench,
    Effort,
    TimedCase,
    compiled,
    lasting,
    measure,
    prepared,
    repeated,
    window,
)
from scaling.hlo.parse import Computation, Instruction, parse_module
from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh, present_mesh
from scaling.meshes.shape import MeshShape
from scaling.profiles.samples import MatmulSample

TIMES = 37  # iterations, a number that no compiler would choose
SMALL = Sizes(("fp32",), ((1, 16, 24, 32), (4, 16, 8, 16)), (2**12,))
OPCODES = {
    "dot": {"dot", "custom-call"},
    "transpose": {"transpose", "copy"},
    "elementwise": {"multiply", "add"},
    "transcendental": {"exponential", "tanh", "clamp"},
    "permute": {"collective-permute"},
}
LEAST = MatmulSample("fp32", 1, 8, 8, 8, ())


def opcodes(computation: Computation) -> list[str]:
    """Of everything that runs in a computation, fusions and calls included, loops not."""
    found = []
    for instruction in computation:
        found.append(instruction.opcode.removesuffix("-start"))
        called = instruction.called("calls") + instruction.called("to_apply")
        for inner in called if instruction.opcode in ("fusion", "call") else ():
            found += opcodes(inner)
    return found


def inside_and_outside(case: TimedCase) -> tuple[set[str], set[str]]:
    """Opcodes in the body of the loop of TIMES iterations, and before it; nothing comes after.

    XLA of jax 0.12 has the entry call a computation that holds nothing but a small loop.
    """
    module = parse_module(compiled(case, TIMES).as_text())
    trips = lambda i: i.backend_config.get("known_trip_count", {}).get("n")
    ((holder, loop),) = [
        (computation, i)
        for computation in module.computations.values()
        for i in computation
        if i.opcode == "while" and trips(i) == str(TIMES)
    ]
    if holder is module.entry:
        check_ends_with(holder, loop)
    else:
        (call,) = [i for i in module.entry if holder in i.called("to_apply")]
        assert holder.root is loop
        check_ends_with(module.entry, call)
    (body,) = loop.called("body")
    return set(opcodes(body)), set(opcodes(module.entry))


def check_ends_with(computation: Computation, instruction: Instruction) -> None:
    last = computation.root
    assert last.opcode in ("get-tuple-element", "tuple")
    for result in last.operands if last.opcode == "tuple" else [last]:
        assert result.operands == (instruction,)


def check_in_loop(case: TimedCase) -> None:
    inside, outside = inside_and_outside(case)
    kind = getattr(case.sample, "kind", "dot")
    wanted = OPCODES.get(kind, {kind})
    assert inside & wanted, case.sample
    assert not outside & wanted - {"copy"}, case.sample  # inputs are copied into the loop


@pytest.fixture(scope="module")
def mesh():
    return present_mesh(MeshShape(data=8))


def test_products_and_memory_operations_run_in_every_iteration(mesh):
    for case in (*matmul_cases(mesh, SMALL), *memory_cases(mesh, SMALL.elements)):
        check_in_loop(case)


def test_collectives_run_in_every_iteration():
    cases = [c for c in collective_cases(8, True, HOST_QUICK.messages) if c.sample.ranks == 4]
    one_size = [case for case in cases if case.sample.bytes == 2**14]
    assert len(one_size) == 5
    for case in one_size:
        check_in_loop(case)


@pytest.mark.slow
def test_attention_runs_in_every_iteration(mesh):
    forward, both = itertools.islice(attention_cases(mesh, HOST_QUICK, flash=False), 2)
    for case in (forward, both):
        check_in_loop(case)


@pytest.mark.deviceless
def test_on_a_gpu_too_everything_runs_in_every_iteration():
    mesh = absent_mesh(MeshShape(data=8), catalog.load("dgx-h100"))
    for case in (*matmul_cases(mesh, SMALL), *memory_cases(mesh, SMALL.elements)):
        check_in_loop(case)


@settings(max_examples=4)  # each compiles
@given(st.integers(1, 5), st.integers(1, 7))
def test_repeating_returns_the_last_result(times, size):
    x, y = jnp.arange(float(size)), jnp.ones(size)
    assert repeated(lambda a, b: a + 2 * b, times)(x, y) == approx(np.arange(size) + 2)


def test_a_result_that_takes_the_inputs_place_is_fed_back():
    assert repeated(lambda x: 2 * x, 5, in_place=True)(jnp.ones(())) == 32


class Clock:
    """A clock that only moves when told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def bench(self, cost, call_cost=0.0, **how):
        def call():
            self.now += call_cost + cost * how["iterations"]

        return Bench(LEAST, call, **how)


def test_a_window_is_divided_by_everything_that_ran_in_it(monkeypatch):
    clock = Clock(monkeypatch)
    assert window(clock.bench(3e-6, iterations=50, calls=7)) == approx(3e-6)


@pytest.mark.parametrize("cost", [1e-7, 1e-5, 1e-3, 0.1])
@pytest.mark.parametrize("effort", [timing.QUICK, timing.FULL])
def test_calls_and_windows_are_long_enough_and_not_longer(monkeypatch, cost, effort):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(timing, "compiled", lambda case, n: None)
    fake = lambda case, n, program: clock.bench(cost, 1e-6, iterations=n)
    monkeypatch.setattr(timing, "_bench", fake)
    bench = lasting(*prepared([TimedCase(LEAST, None, None, ())], effort), effort)
    call = cost * bench.iterations
    assert call >= effort.call / 2 or bench.iterations == timing.MOST
    assert call * bench.calls >= 0.9 * min(effort.window, cost * timing.MOST)
    assert call * bench.calls <= 1.1 * effort.window + max(2 * effort.call, timing.PILOT * cost)


def test_every_point_comes_back_in_order_with_all_its_repeats(monkeypatch):
    clock, costs, ran = Clock(monkeypatch), {8: 1e-3, 16: 2e-3, 32: 4e-3}, []
    cases = [TimedCase(MatmulSample("fp32", 1, m, 8, 8, ()), None, None, ()) for m in costs]

    def fake(case, iterations, program):
        bench = clock.bench(costs[case.sample.m], iterations=iterations)

        def call():
            ran.append(case.sample.m)
            bench.call()

        return Bench(case.sample, call, iterations)

    monkeypatch.setattr(timing, "compiled", lambda case, n: None)
    monkeypatch.setattr(timing, "_bench", fake)
    samples, _ = measure(cases, Effort(1e-3, 1e-3, repeats=9, steps=0), lambda text: None)
    assert [sample.m for sample in samples] == list(costs)
    for sample in samples:
        assert sample.seconds == approx((costs[sample.m],) * 9)
    rounds = [tuple(ran[-27:][i : i + 3]) for i in range(0, 27, 3)]
    assert all(sorted(r) == [8, 16, 32] for r in rounds)
    assert len(set(rounds)) > 1  # not always in the same order


def test_a_real_measurement_is_positive_and_says_what_it_does(mesh):
    told = []
    cases = list(matmul_cases(mesh, SMALL))[:1]
    (sample,), load = measure(cases, Effort(1e-4, 1e-4, repeats=2, steps=0), told.append)
    assert len(sample.seconds) == 2 and min(sample.seconds) > 0 and 0 <= load <= 1
    assert "compiling 1 operations, most of them twice" in told and "repeat 2 of 2" in told[2]


@pytest.mark.parametrize(
    ("loads", "kept", "most"),
    [
        ([0.0, 0.1, 0.0], [1, 2, 3], 0.1),  # quiet: as many as asked for
        ([0.9, 0.0, 0.1, 0.0], [2, 3, 4], 0.1),  # one repeat is done again
        ([0.9, 0.5, 0.6, 0.4], [2, 3, 4], 0.6),  # never quiet: the best, after half as many again
    ],
)
def test_repeats_on_a_busy_machine_are_done_again_at_most_half_of_them(
    monkeypatch, loads, kept, most
):
    """Their numbers are the seconds measured; the quietest are kept, and the load is told."""
    told, numbers = [], iter(range(1, 100))
    busy = iter(loads)
    monkeypatch.setattr(timing, "prepared", lambda cases, effort: [Bench(LEAST, lambda: None, 1)])
    monkeypatch.setattr(timing, "lasting", lambda bench, effort: bench)
    monkeypatch.setattr(timing, "window", lambda bench: float(next(numbers)))
    monkeypatch.setattr(timing.OtherLoad, "share", lambda self: next(busy))
    (sample,), load = measure([], Effort(1, 1, repeats=3, steps=1), told.append)
    assert sorted(sample.seconds) == kept and load == most and next(busy, None) is None
    assert ("busy" in told[-1]) == (len(loads) > 3)


@pytest.mark.slow
def test_one_device_alone_can_be_measured():
    mesh = present_mesh(MeshShape(), jax.devices()[:1])
    cases = [next(matmul_cases(mesh, SMALL)), *attention_cases(mesh, HOST_QUICK, flash=False)]
    for case in cases[:3]:
        assert "while" in compiled(case, 3).as_text()
