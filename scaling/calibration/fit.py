"""Fits of a profile from raw samples.

What is linear in a cost (overhead, rate) is solved by least squares of relative errors; what is not
(half sizes, the size of a cache) is searched on a grid.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from scaling.calibration.regression import FASTEST, line_or_knee, lines, rate, scored
from scaling.collectives.measured import fitted_time
from scaling.meshes.errors import InputError
from scaling.profiles.profile import (
    AttentionFit,
    CollectiveFit,
    Evidence,
    MatmulFit,
    MemoryFit,
    VectorFit,
)
from scaling.profiles.samples import AttentionSample, CollectiveSample, MatmulSample, MemorySample
from scaling.program import ops

HALF_SIZES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)  # the grid of each dimension
HALF_KEYS = (0.0, *np.geomspace(16, 2048, 29))
HALF_HEADS = (0.0, *np.geomspace(4, 256, 25))
SLOWER = 1.5  # times the time of its bytes, from which a sample counts as bound by arithmetic
HELD_OUT = 8  # samples from which half of them, drawn at random, are held out once


Sample = TypeVar("Sample")
Fit = TypeVar("Fit", bound=Callable[..., Any])  # (samples, ...) -> what has `evidence`


def typical(samples: Sequence[Any]) -> np.ndarray:
    """Median seconds of each sample over its repeats."""
    return np.array([np.median(sample.seconds) for sample in samples])


def with_errors(seconds: Callable[[Any, Sequence[Any]], np.ndarray]) -> Callable[[Fit], Fit]:
    """Returns a decorator of fits, which adds the errors of `seconds` by the fit to its evidence.

    From HELD_OUT samples on also the error of a fit to half of them on the others.
    """

    def decorator(fit: Fit) -> Fit:
        @wraps(fit)
        def scored_fit(samples: Sequence[Any], *args: Any, **options: Any) -> Any:
            if len(samples) < 2:
                raise InputError(f"a fit needs two samples or more, got {len(samples)}")
            result = fit(samples, *args, **options)
            evidence = scored(result.evidence, seconds(result, samples), typical(samples))
            if len(samples) >= HELD_OUT:
                order = np.random.default_rng(0).permutation(len(samples))  # grids are regular
                half, rest = ([samples[i] for i in part] for part in (order[::2], order[1::2]))
                errors = np.abs(seconds(fit(half, *args, **options), rest) / typical(rest) - 1)
                evidence = replace(evidence, held_out_error=float(errors.mean()))
            return replace(result, evidence=evidence)

        return cast(Fit, scored_fit)

    return decorator


def grouped(samples: Iterable[Sample], *names: str) -> list[list[Sample]]:
    """The samples by the values of the named fields, in the order of their first."""
    groups: dict[tuple[Any, ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(tuple(getattr(sample, name) for name in names), []).append(sample)
    return list(groups.values())


def matmul_seconds(fit: MatmulFit, samples: Sequence[MatmulSample]) -> np.ndarray:
    """Seconds of each sample by the fit; without waves, which only GPUs have."""
    sizes = np.array([(p.batch, p.m, p.n, p.k) for p in samples], float)
    padded = sizes + (0.0, *fit.half_sizes)
    flop_rate = fit.efficiency * (fit.peak or 1.0)
    return fit.overhead + 2 * padded.prod(axis=1) / flop_rate


@with_errors(matmul_seconds)
def fit_matmul(samples: Sequence[MatmulSample], evidence: Evidence) -> MatmulFit:
    """The fit of one dtype: the best half sizes of the grid, the fitted rate as peak."""
    sizes = np.array([(p.m, p.n, p.k) for p in samples], float)
    batch = np.array([p.batch for p in samples], float)
    grid = np.array(list(itertools.product(HALF_SIZES, repeat=3)))
    work = 2 * batch * (sizes + grid[:, None, :]).prod(axis=-1)  # [candidates, samples]
    a, b, loss = lines(work, typical(samples))
    best = int(np.argmin(loss))
    halves = (float(grid[best, 0]), float(grid[best, 1]), float(grid[best, 2]))
    first = samples[0].dtype
    return MatmulFit(first, 1.0, evidence, float(a[best]), halves, peak=rate(b[best]))


def memory_seconds(fit: MemoryFit, samples: Sequence[MemorySample]) -> np.ndarray:
    """Seconds of each sample by the fit, without its arithmetic."""
    moved = np.array([p.bytes for p in samples])
    near = np.minimum(moved, fit.cache) if fit.cache_bandwidth else 0.0 * moved
    far_rate = fit.efficiency * (fit.bandwidth or 1.0)
    return fit.overhead + near / (fit.cache_bandwidth or 1.0) + (moved - near) / far_rate


@with_errors(memory_seconds)
def fit_memory(samples: Sequence[MemorySample], evidence: Evidence) -> MemoryFit:
    """The fit of copies, transposes and reductions; with a cache if that halves the loss."""
    moved = np.array([p.bytes for p in samples])
    overhead, per_byte, cache, near = line_or_knee(moved, typical(samples))
    return MemoryFit(1.0, evidence, overhead, rate(per_byte), cache, near)


def fit_vector(samples: Sequence[MemorySample], memory: MemoryFit, evidence: Evidence) -> VectorFit:
    """Rates of arithmetic and of transcendentals, from samples slower than their bytes."""
    seconds = typical(samples)
    work = np.array([(p.vector_flops, p.transcendentals) for p in samples])
    left = seconds - memory.overhead
    slow = seconds > SLOWER * memory_seconds(memory, samples)
    rates = [FASTEST, FASTEST]
    for i in (0, 1):  # arithmetic alone first, then what transcendentals add to it
        rest = left - work[:, 0] / rates[0] if i else left
        used = slow & (work[:, i] > 0) & (rest > 0) & ((work[:, 1] > 0) == bool(i))
        if used.any():
            rates[i] = float(np.median(work[used, i] / rest[used]))
    vector = work[:, 0] / rates[0] + work[:, 1] / rates[1]
    moved = memory_seconds(memory, samples) - memory.overhead
    predicted = memory.overhead + np.maximum(moved, vector)
    return VectorFit(rates[0], rates[1], scored(evidence, predicted, seconds))


def attention_flops(sample: AttentionSample) -> float:
    """FLOPs of the products over all scores, of a fused kernel."""
    scores = float(sample.batch * sample.heads * sample.queries * sample.keys)
    backward = sample.direction != "forward"
    return float(ops.attention_flops(scores, sample.head_dim, sample.head_dim, backward))


def attention_seconds(fit: AttentionFit, samples: Sequence[AttentionSample]) -> np.ndarray:
    """Seconds of each sample by the fit, whose `softmax` is in seconds; without waves."""
    peak = fit.peak or 1.0
    half_head = fit.softmax * peak / _score_flops(samples[0])
    return fit.overhead + _attention_work(samples, fit.start, half_head) / peak


def _score_flops(sample: AttentionSample) -> float:
    """FLOPs of one score of heads with one dimension."""
    return attention_flops(replace(sample, batch=1, heads=1, queries=1, keys=1, head_dim=1))


def _attention_work(
    samples: Sequence[AttentionSample], half_keys: float, half_head: float
) -> np.ndarray:
    flops = np.array([attention_flops(p) for p in samples])
    keys, heads = np.array([(p.keys, p.head_dim) for p in samples], float).T
    return flops * (1 + half_keys / keys) * np.hypot(1, half_head / heads)


@with_errors(attention_seconds)
def fit_attention(samples: Sequence[AttentionSample], evidence: Evidence) -> AttentionFit:
    """The fit of one direction and dtype; its `softmax` is in seconds of all cores."""
    heads = HALF_HEADS if len({p.head_dim for p in samples}) > 1 else (0.0,)
    halves = list(itertools.product(HALF_KEYS, heads))
    work = np.array([_attention_work(samples, *pair) for pair in halves])
    a, b, loss = lines(work, typical(samples))
    best = int(np.argmin(loss))
    first, (start, half_head), peak = samples[0], halves[best], rate(b[best])
    softmax = _score_flops(first) * half_head / peak
    return AttentionFit(first.direction, 1.0, evidence, float(a[best]), softmax, start, peak=peak)


def collective_seconds(fit: CollectiveFit, samples: Sequence[CollectiveSample]) -> np.ndarray:
    """Seconds of each sample by the fit."""
    return np.asarray(fitted_time(fit, np.array([p.bytes for p in samples], float)))


@with_errors(collective_seconds)
def fit_collective(samples: Sequence[CollectiveSample], evidence: Evidence) -> CollectiveFit:
    """A line of seconds over bytes, with a knee if that halves the loss."""
    first, moved = samples[0], np.array([p.bytes for p in samples], float)
    alpha, per_byte, cache, near = line_or_knee(moved, typical(samples))
    what = first.kind, first.ranks, first.groups
    return CollectiveFit(*what, alpha, rate(per_byte), evidence, cache, near)


def fit_collectives(
    samples: Sequence[CollectiveSample], evidence: Evidence
) -> tuple[CollectiveFit, ...]:
    """The fit of every (kind, ranks, groups) among the samples."""
    groups = grouped(samples, "kind", "ranks", "groups")
    return tuple(fit_collective(group, evidence) for group in groups)
