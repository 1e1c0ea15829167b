"""Fits of a CPU, whose kernels take the sum of their parts.

    seconds = overhead + near bytes / near rate + far bytes / far rate
            + vector FLOPs / rate + transcendentals / rate

One regression over all samples. The first `cache` bytes of a call are near; `cache` is searched
among powers of two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaling.calibration.fit import typical, with_errors
from scaling.calibration.regression import CACHES, parts, rate
from scaling.profiles.profile import DispatchFit, Evidence, MemoryFit, StepFit, VectorFit
from scaling.profiles.samples import DispatchSample, MemorySample, StepSample


@dataclass(frozen=True)
class SumFit:
    """Memory and vector units, fitted together."""

    memory: MemoryFit
    vector: VectorFit
    evidence: Evidence


def sum_seconds(fit: SumFit, samples: Sequence[MemorySample]) -> np.ndarray:
    """Seconds of each sample by the fit."""
    memory, vector = fit.memory, fit.vector
    assert memory.bandwidth and memory.cache_bandwidth
    each = [1 / memory.cache_bandwidth, 1 / memory.bandwidth - 1 / memory.cache_bandwidth]
    each += [1 / vector.flops, 1 / vector.transcendentals]
    return _work(samples, memory.cache) @ np.array([memory.overhead, *each])


def _work(samples: Sequence[MemorySample], cache: float) -> np.ndarray:
    """[samples, kinds]: calls, bytes, bytes beyond the cache, FLOPs, transcendentals."""
    beyond = lambda p: max(0.0, p.bytes - cache)
    rows = [(1, p.bytes, beyond(p), p.vector_flops, p.transcendentals) for p in samples]
    return np.array(rows, float)


@with_errors(sum_seconds)
def _sum(samples: Sequence[MemorySample], evidence: Evidence) -> SumFit:
    """The fit of both units, each without the errors of the sum."""
    seconds = typical(samples)
    solved = [(cache, *parts(_work(samples, cache), seconds)) for cache in CACHES]
    cache, each, _ = min(solved, key=lambda solution: solution[-1])
    overhead, near, beyond, flops, special = map(float, each)
    memory = MemoryFit(1.0, evidence, overhead, rate(near + beyond), cache, rate(near))
    return SumFit(memory, VectorFit(rate(flops), rate(special), evidence), evidence)


def fit_sum(samples: Sequence[MemorySample], evidence: Evidence) -> tuple[MemoryFit, VectorFit]:
    """Memory and vector rates; their errors are those of the sum."""
    fit = _sum(samples, evidence)
    return replace(fit.memory, evidence=fit.evidence), replace(fit.vector, evidence=fit.evidence)


def dispatch_seconds(
    fit: DispatchFit, samples: Sequence[DispatchSample], memory: MemoryFit
) -> np.ndarray:
    """Seconds of each sample by the fits."""
    work = np.array([(1, p.buffers, p.fresh) for p in samples], float)
    each = np.array([fit.overhead, fit.per_buffer, 1 / fit.fresh_bandwidth])
    return work @ each + _touching(samples, memory)


def fit_dispatch(
    samples: Sequence[DispatchSample], memory: MemoryFit, kept: float, evidence: Evidence
) -> DispatchFit:
    """The cost of calling a program, besides the memory that it touches.

    Args:
        samples: with several numbers of buffers, and some with fresh memory.
        kept: bytes of temporaries that the allocator keeps from call to call.
    """

    @with_errors(lambda fit, part: dispatch_seconds(fit, part, memory))
    def fitted(samples: Sequence[DispatchSample]) -> DispatchFit:
        seconds, known = typical(samples), _touching(samples, memory)
        buffers, fresh = np.array([(p.buffers, p.fresh) for p in samples], float).T
        plain = fresh == 0
        work = np.stack([np.ones(plain.sum()), buffers[plain]], axis=1)
        (overhead, each), _ = parts(work, seconds[plain], known[plain])
        rest = (seconds - known - overhead - each * buffers)[~plain] / fresh[~plain]
        per_byte = max(float(np.median(rest)), 0.0) if len(rest) else 0.0
        return DispatchFit(float(overhead), float(each), rate(per_byte), kept, evidence)

    return fitted(samples)


def _touching(samples: Sequence[DispatchSample], memory: MemoryFit) -> np.ndarray:
    assert memory.bandwidth
    return np.array([p.touched for p in samples]) / memory.bandwidth


def step_seconds(fit: StepFit, samples: Sequence[StepSample]) -> np.ndarray:
    """Seconds of each sample by the fit."""
    return np.array([fit.slowdown * p.kernels + p.rest for p in samples])


@with_errors(step_seconds)
def fit_step(samples: Sequence[StepSample], evidence: Evidence) -> StepFit:
    """Time of kernels in whole steps over their time alone, at least 1; of two steps or more."""
    kernels, rest = np.array([(p.kernels, p.rest) for p in samples]).T
    (more,), _ = parts(kernels[:, None], typical(samples), known=kernels + rest)
    return StepFit(1.0 + float(more), evidence)
