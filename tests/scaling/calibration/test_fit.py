"""Fits: they find what made the samples, state their errors, and give the shipped figures again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.calibration import fit as fits
from scaling.calibration.regression import lines, scored
from scaling.meshes.errors import InputError
from scaling.profiles.profile import AttentionFit, Evidence, MatmulFit, MemoryFit
from scaling.profiles.samples import AttentionSample, CollectiveSample, MatmulSample, MemorySample

HERE = Evidence("a test", "2026-11", "measured")
RATES = st.floats(1e9, 1e13)
OVERHEADS = st.floats(1e-7, 1e-4)
SHAPES = [(1, m, n, k) for m in (8, 64, 512) for n in (16, 256) for k in (32, 1024)]
SIZES = [2.0**i for i in range(10, 31, 2)]


def at(seconds):
    """One repeat."""
    return (float(seconds),)


@given(OVERHEADS, RATES)
def test_a_line_through_its_own_points_is_found(a, rate):
    work = np.array([1e3, 1e6, 1e9])
    found_a, found_b, loss = lines(work, a + work / rate)
    assert found_b == pytest.approx(1 / rate, rel=1e-4)
    assert found_a == pytest.approx(a, rel=1e-4)
    assert loss < 1e-9


@given(st.dictionaries(st.integers(0, 30), st.floats(1e-6, 1), min_size=2, max_size=8))
def test_no_line_is_negative_or_beaten_by_its_neighbours(samples):
    work, seconds = 2.0 ** np.array(list(samples)), np.array(list(samples.values()))
    a, b, loss = lines(work, seconds)
    assert a >= 0 and b >= 0
    for near_a, near_b in ((a * 1.01, b), (a * 0.99, b), (a, b * 1.01), (a, b * 0.99)):
        assert (((near_a + near_b * work) / seconds - 1) ** 2).sum() >= loss * (1 - 1e-9) - 1e-12


def test_repeats_count_by_their_median():
    samples = [MemorySample("copy", 1e6, (1.0, 2.0, 100.0)), MemorySample("copy", 2e6, (3.0,))]
    assert fits.typical(samples).tolist() == [2.0, 3.0]


def test_half_sizes_are_found():
    halves = (4.0, 16.0, 64.0)
    true = MatmulFit("fp32", 1.0, HERE, 2e-6, halves, peak=5e10)
    samples = [MatmulSample("fp32", *shape, ()) for shape in SHAPES]
    seconds = fits.matmul_seconds(true, samples)
    samples = [replace(p, seconds=at(s)) for p, s in zip(samples, seconds, strict=True)]
    found = fits.fit_matmul(samples, HERE)
    assert found.half_sizes == halves
    assert (found.efficiency, found.peak) == (1.0, pytest.approx(5e10))
    assert found.evidence.max_error < 1e-6
    assert found.evidence.held_out_error < 1e-6
    assert found.evidence.samples == len(SHAPES)


def test_errors_are_those_of_noise():
    noise = np.random.default_rng(0).normal(1, 0.1, len(SHAPES))
    samples = [
        MatmulSample("fp32", *s, at(n * (1e-5 + 2 * np.prod(s) / 1e10)))
        for s, n in zip(SHAPES, noise, strict=True)
    ]
    evidence = fits.fit_matmul(samples, HERE).evidence
    assert 0.02 < evidence.mean_error < 0.15
    assert evidence.median_error <= evidence.max_error
    assert evidence.held_out_error > evidence.mean_error / 2


def test_noise_is_not_taken_for_a_cache():
    noise = np.random.default_rng(1).normal(1, 0.1, len(SIZES))
    rows = zip(SIZES, noise, strict=True)
    samples = [MemorySample("copy", b, at(n * (1e-6 + b / 2e10))) for b, n in rows]
    assert fits.fit_memory(samples, HERE).cache_bandwidth is None


def test_a_cache_is_found_where_it_explains_the_points():
    true = MemoryFit(1.0, HERE, 1e-6, 1e10, 2.0**20, 8e10)
    blank = [MemorySample("copy", b, ()) for b in SIZES]
    seconds = fits.memory_seconds(true, blank)
    samples = [replace(p, seconds=at(s)) for p, s in zip(blank, seconds, strict=True)]
    found = fits.fit_memory(samples, HERE)
    assert found.cache == 2.0**20
    assert found.cache_bandwidth == pytest.approx(8e10, rel=0.01)
    assert found.bandwidth == pytest.approx(1e10, rel=0.01)


def test_rates_of_arithmetic_and_of_exponentials_are_told_apart():
    memory = MemoryFit(1.0, HERE, 1e-6, 1e11)
    chain = [
        MemorySample("elementwise", 8 * n, at(1e-6 + 50 * n / 1e10), 50 * n) for n in (1e5, 1e6)
    ]
    exp = [
        MemorySample("transcendental", 8 * n, at(1e-6 + n / 1e10 + n / 5e8), n, n)
        for n in (1e5, 1e6)
    ]
    copies = [MemorySample("copy", 8 * n, at(1e-6 + 8 * n / 1e11)) for n in (1e5, 1e6)]
    found = fits.fit_vector([*chain, *exp, *copies], memory, HERE)
    assert found.flops == pytest.approx(1e10, rel=1e-3)
    assert found.transcendentals == pytest.approx(5e8, rel=1e-3)
    assert found.evidence.max_error < 1e-3


@given(st.sampled_from(["forward", "backward"]))
def test_attention_is_found(direction):
    true = AttentionFit(direction, 1.0, HERE, 2e-6, softmax=5e-13, start=256.0, peak=5e14)
    blank = [
        AttentionSample("bf16", b, 16, s, s, d, direction, ())
        for b, s, d in ((1, 512, 64), (8, 512, 128), (1, 4096, 64), (2, 4096, 128), (1, 16384, 128))
    ]
    seconds = fits.attention_seconds(true, blank)
    samples = [replace(p, seconds=at(s)) for p, s in zip(blank, seconds, strict=True)]
    found = fits.fit_attention(samples, HERE)
    assert found.evidence.max_error < 0.01
    assert found.peak == pytest.approx(5e14, rel=0.1)


def test_collectives_are_fitted_by_kind_ranks_and_groups():
    samples = [
        CollectiveSample(kind, ranks, 8 // ranks, b, at(1e-5 * ranks + b / 1e9))
        for kind in ("all-reduce", "all-gather")
        for ranks in (2, 8)
        for b in (1e3, 1e5, 1e7)
    ]
    found = {(f.kind, f.ranks, f.groups): f for f in fits.fit_collectives(samples, HERE)}
    assert set(found) == {
        (kind, *shape) for kind in ("all-reduce", "all-gather") for shape in ((2, 4), (8, 1))
    }
    assert found["all-reduce", 8, 1].alpha == pytest.approx(8e-5)
    assert found["all-reduce", 8, 1].bandwidth == pytest.approx(1e9)


def test_a_collective_may_have_a_knee():
    sizes = [2.0**i for i in range(10, 26, 2)]
    seconds = [1e-5 + min(b, 2.0**18) / 8e9 + max(b - 2.0**18, 0) / 5e8 for b in sizes]
    samples = [
        CollectiveSample("all-to-all", 4, 2, b, at(s)) for b, s in zip(sizes, seconds, strict=True)
    ]
    (found,) = fits.fit_collectives(samples, HERE)
    assert (found.cache, found.cache_bandwidth) == (2.0**18, pytest.approx(8e9, rel=0.01))
    assert found.bandwidth == pytest.approx(5e8, rel=0.01)
    assert found.evidence.max_error < 0.01


def test_one_point_is_no_fit():
    with pytest.raises(InputError, match="two samples or more, got 1"):
        fits.fit_memory([MemorySample("copy", 1.0, (1.0,))], HERE)


def test_errors_are_relative_to_what_was_measured():
    evidence = scored(HERE, np.array([1.0, 3.0, 2.0]), np.array([1.0, 2.0, 4.0]))
    assert evidence.samples == 3
    assert (evidence.median_error, evidence.max_error) == (0.5, 0.5)
    assert evidence.mean_error == pytest.approx(1 / 3)
