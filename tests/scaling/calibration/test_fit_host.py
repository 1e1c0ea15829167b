"""The fits of a CPU: what made the samples is found, all parts at once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.calibration.fit_host import (
    SumFit,
    dispatch_seconds,
    fit_dispatch,
    fit_step,
    fit_sum,
    step_seconds,
    sum_seconds,
)
from scaling.profiles.profile import DispatchFit, Evidence, MemoryFit, StepFit, VectorFit
from scaling.profiles.samples import DispatchSample, MemorySample, StepSample

HERE = Evidence("a test", "2026-11", "measured")
MEMORY = MemoryFit(1.0, HERE, 1e-6, 5e9, 2.0**20, 4e10)
VECTOR = VectorFit(2e10, 8e8, HERE)
KEPT = 32 * 2.0**20


def timed(samples, seconds):
    return [replace(p, seconds=(float(s),)) for p, s in zip(samples, seconds, strict=True)]


def blank():
    """Of every kind and many sizes."""
    found = []
    for bytes_ in 2.0 ** np.arange(10, 26, 2):
        found += [
            MemorySample("copy", bytes_, ()),
            MemorySample("elementwise", bytes_, (), bytes_),
            MemorySample("transcendental", bytes_, (), bytes_ / 8, bytes_ / 8),
        ]
    return found


def test_all_rates_are_found_together():
    samples = timed(blank(), sum_seconds(SumFit(MEMORY, VECTOR, HERE), blank()))
    memory, vector = fit_sum(samples, HERE)
    for name in ("overhead", "bandwidth", "cache", "cache_bandwidth"):
        assert getattr(memory, name) == pytest.approx(getattr(MEMORY, name), rel=1e-4)
    assert (vector.flops, vector.transcendentals) == pytest.approx((2e10, 8e8), rel=1e-4)
    assert memory.evidence == vector.evidence
    assert memory.evidence.max_error < 1e-6 and memory.evidence.samples == len(samples)


@settings(max_examples=10)  # each takes a search
@given(st.integers(0, 2**32))
def test_far_memory_is_never_faster_than_near(seed):
    noise = np.random.default_rng(seed).lognormal(0, 0.5, len(blank()))
    samples = timed(blank(), noise * sum_seconds(SumFit(MEMORY, VECTOR, HERE), blank()))
    memory, vector = fit_sum(samples, HERE)
    assert memory.bandwidth <= memory.cache_bandwidth
    assert min(vector.flops, vector.transcendentals) > 0
    assert memory.overhead >= 0


def calls():
    buffers = [DispatchSample(n, 100.0 * n, 0.0, ()) for n in (2, 8, 64)]
    return [*buffers, *(DispatchSample(2, 3 * t, t, ()) for t in (4e7, 8e7))]


def test_calls_are_charged_by_the_buffer_and_by_fresh_memory():
    true = DispatchFit(6e-5, 4e-6, 4e8, KEPT, HERE)
    found = fit_dispatch(
        timed(calls(), dispatch_seconds(true, calls(), MEMORY)), MEMORY, KEPT, HERE
    )
    assert (found.overhead, found.per_buffer) == pytest.approx((6e-5, 4e-6), rel=1e-4)
    assert found.fresh_bandwidth == pytest.approx(4e8, rel=1e-4)
    assert found.evidence.max_error < 1e-6


def test_a_system_that_hands_out_memory_for_nothing_has_a_rate_that_a_file_holds():
    samples = [replace(p, seconds=(1e-4,)) for p in calls()]
    assert 0 < fit_dispatch(samples, MEMORY, KEPT, HERE).fresh_bandwidth <= 1e18


def test_a_call_faster_than_its_bytes_costs_nothing_besides_them():
    samples = [DispatchSample(n, 1e6, 0.0, (1e-5,)) for n in (2, 64)]  # 1 MB takes 0.2 ms
    found = fit_dispatch(samples, MEMORY, KEPT, HERE)
    assert (found.overhead, found.per_buffer) == (0.0, 0.0)


def test_kernels_take_longer_in_steps_than_alone():
    samples = [StepSample("a", 0.1, 0.02, (0.15,)), StepSample("b", 0.2, 0.0, (0.26, 0.26, 9.0))]
    found = fit_step(samples, HERE)
    assert found.slowdown == pytest.approx(1.3)
    assert step_seconds(found, samples) == pytest.approx([0.15, 0.26])
    assert found.evidence.max_error < 1e-9


def test_kernels_do_not_run_faster_in_a_step_than_alone():
    samples = [StepSample(name, 0.2, 0.0, (0.1,)) for name in "ab"]
    found = fit_step(samples, HERE)
    assert found == StepFit(pytest.approx(1.0), found.evidence)
    assert found.evidence.max_error == pytest.approx(1.0)
