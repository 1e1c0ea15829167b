"""Seconds of one kernel: the roofline, with the efficiencies of a profile.

    time = max(matrix FLOPs / (peak x efficiency),
               vector FLOPs / rate + transcendentals / rate,
               bytes / (bandwidth x efficiency),
               bytes to or from the host / its bandwidth) + overhead + chain of steps

Matrix products have a form of their own (`products`), where bytes hide behind FLOPs not quite.
On a CPU (a profile without `overlap`) the parts add up, instead of the slowest hiding the others;
only of a matrix product the traffic is in its efficiency, and counts where it alone takes longer.

Figures may be numpy arrays over configurations; everything broadcasts.
"""

from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from scaling.meshes.accelerator import Accelerator
from scaling.profiles.profile import (
    AttentionFit,
    Evidence,
    MatmulFit,
    MemoryFit,
    Profile,
    matmul_fit,
)
from scaling.program.ir import Kernel, Number
from scaling.simulate import attention, products

BOUNDS = np.array(["compute", "memory", "overhead"])
# What a chip without units for a format multiplies in: NVIDIA before Ampere has neither TF32 nor
# bf16 (NVIDIA A100 Tensor Core GPU Architecture, 2020, table 3), before Ada and Hopper no fp8,
# before Blackwell no fp4, since Hopper no int4.
WIDER = {"tf32": "fp32", "bf16": "fp32", "fp8": "bf16", "fp4": "fp8", "int4": "int8"}
ROUNDING = 1e-9  # relative, of the arithmetic in a price

# What prices copies that wait for the host's memory
HOST_LINK = Evidence(
    "the wires' rated bandwidth, and the share of it that copies reach on an A100 "
    "(NVIDIA/nvbandwidth, issue 42)",
    "",
    "datasheet",
)

# What prices kernels of a TPU's program. Five products of int32 on a v5e took 223, 58, 59, 56 and
# 58 us ("How to Scale Your Model", "Programming TPUs in JAX", pictures of profiles); planned
# are 223, 57, 55, 55 and 58 (scaling/hlo/kept): too few for a fit.
PLANNED = Evidence(
    "cycles that XLA's compiler for TPUs planned, at the chip's clock", "2026-11", "datasheet"
)

# Part of the L2 cache that a fusion's operands may fill and be found there: casts of 0.68 of it ran
# at the cache's rate on an H100, of 0.84 at the memory's (experiments/published/fit_memory.py).
KEPT = 0.75


@dataclass(frozen=True)
class KernelCost:
    """Seconds of one call, and what they consist of."""

    time: Number
    compute: Number  # of the slower of matrix and vector units
    memory: Number
    overhead: Number  # launching, or calling
    parts: tuple[tuple[Number, Evidence], ...]  # seconds of each unit and link that is busy
    call: Evidence  # of the overhead
    moved: Number  # bytes of memory, with the rows that are not found in the cache again
    unpriced: str = ""  # format of its products if nobody knows their rate: they take no time

    @cached_property
    def evidence(self) -> Evidence:
        """That of the figure that most of the time comes from."""
        parts = (*self.parts, (self.overhead, self.call))
        return max(parts, key=lambda part: float(np.max(part[0])))[1]

    @cached_property
    def bound(self) -> str | np.ndarray:
        """The largest of the three parts: "compute", "memory" or "overhead"."""
        parts = np.broadcast_arrays(self.compute, self.memory, self.overhead)
        words = BOUNDS[np.argmax(np.stack(parts), axis=0)]
        return words if words.ndim else str(words)


def kernel_time(
    kernel: Kernel, accelerator: Accelerator, profile: Profile, host: float | None = None
) -> KernelCost:
    """Price one call of a kernel.

    Args:
        host: bytes/s between the chip and its host's memory (`scaling.meshes.host_link`); None: the
            time of such bytes is not priced.

    Raises:
        InputError: the kernel has matrix products in a format for which the chip, or the profile,
            has no rate; or the memory bandwidth is not known.
    """
    if kernel.cycles and accelerator.clock and accelerator.chip_cores:
        return _planned(kernel, kernel.cycles / accelerator.clock, accelerator)
    if (fused := attention.fit_of(kernel, profile)) and np.any(kernel.flops):
        return _attention(kernel, fused, accelerator, profile, host)
    busy, limit, fit = _matrix(kernel, accelerator, profile)
    busy, limit = busy / kernel.share, limit / kernel.share
    matrix = np.maximum(busy, limit)
    stream = fit.stream if isinstance(fit, MatmulFit) else None
    vector = _vector(kernel, profile)
    slower, moved = 1.0, moved_bytes(kernel, accelerator, profile)
    link = kernel.host_bytes / host if host is not None and profile.overlap else 0.0
    if profile.overlap:
        memory = _moving(kernel, moved, accelerator, profile.memory)
        if stream is not None:
            memory = memory * profile.memory.efficiency / stream
        memory = np.maximum(memory, link)
        compute = np.maximum(matrix, vector)
        together = np.maximum(busy, memory) if stream is None else np.hypot(busy, memory)
        time = np.maximum(compute, together) + fit.overhead + kernel.chain
    else:
        copies = kernel.kind == "copy"  # what is copied and no more comes from far, or goes there
        moving = _far_time if copies else memory_time
        memory = moving(moved, accelerator, profile.memory)
        compute = matrix + vector
        time = np.maximum(matrix, memory) + vector + fit.overhead
        if profile.step:  # among other kernels, which use the same cache
            slower = profile.step.slowdown
    parts = (
        (link, HOST_LINK),
        (matrix, fit.evidence),
        (slower * memory, (profile.memory if stream is None else fit).evidence),
        (vector, profile.vector.evidence),
    )
    waiting = slower * fit.overhead + (kernel.chain if profile.overlap else 0.0)
    scaled = slower * time, slower * compute, slower * memory, waiting
    cost = KernelCost(*scaled, parts, fit.evidence, moved)
    assert is_possible(kernel, cost, accelerator, profile), f"{kernel.name} is priced above a peak"
    return cost


def _planned(kernel: Kernel, time: float, accelerator: Accelerator) -> KernelCost:
    """One kernel of a TPU that takes the cycles its compiler planned, or what its bytes take."""
    memory = kernel.bytes / accelerator.required("memory_bandwidth")
    most = np.maximum(time, memory)
    return KernelCost(most, time, memory, 0.0, ((most, PLANNED),), PLANNED, kernel.bytes)


def _attention(
    kernel: Kernel,
    fit: AttentionFit,
    accelerator: Accelerator,
    profile: Profile,
    host: float | None,
) -> KernelCost:
    """One fused attention, whose keys may come from the host."""
    peak = fit.peak or peak_rate(accelerator, kernel.dtype)
    cost = attention.attention_time(kernel, fit, accelerator, profile, peak)
    link = kernel.host_bytes / host if host is not None else 0.0
    time, memory = np.maximum(cost.time, link + cost.overhead), np.maximum(cost.memory, link)
    parts = (np.maximum(cost.compute, cost.memory), fit.evidence), (link, HOST_LINK)
    priced = KernelCost(
        time, cost.compute, memory, cost.overhead, parts, fit.evidence, kernel.bytes
    )
    assert is_possible(kernel, priced, accelerator, profile), f"{kernel.name} is above a peak"
    return priced


def is_possible(
    kernel: Kernel, cost: KernelCost, accelerator: Accelerator, profile: Profile
) -> bool:
    """False if a kernel computes or moves more per second than was ever measured, or the chip can.

    A cache is held to its own bandwidth.
    """
    least = least_time(kernel, cost.moved, accelerator, profile)
    return bool(np.all(np.asarray(cost.time) * (1 + ROUNDING) >= least))


def least_time(kernel: Kernel, moved: Number, accelerator: Accelerator, profile: Profile) -> Number:
    """Seconds of a call that moves so many bytes, each part at the best rate of its evidence.

    Decoding that is repeated alone finds its keys in the L2 cache.
    """
    fused = attention.fit_of(kernel, profile)
    share = max(profile.memory.best, fused.memory or 0.0 if fused else 0.0)
    best = replace(profile.memory, efficiency=share)
    decodes = fused is not None and fused.direction == "decode"
    memory = _moving(
        replace(kernel, kind="fusion") if decodes else kernel, moved, accelerator, best
    )
    if kernel.kind == "copy" and not profile.overlap:
        memory = 0.0  # which may be from far: it takes longer
    parts = [memory] if fused else [memory, _vector(kernel, profile)]
    if np.any(kernel.flops):
        fit = fused or matmul_fit(profile, kernel.dtype, grouped=kernel.kind == "grouped")
        rate = fit.best * (fit.peak or peak_rate(accelerator, kernel.dtype))
        parts.append(computed_flops(kernel, profile) / rate)
    return reduce(np.maximum, parts)


def moved_bytes(kernel: Kernel, accelerator: Accelerator, profile: Profile) -> Number:
    """Bytes of memory that a call moves, rows that are not found in the cache again.

    Indices are taken to be spread evenly: of the arrays that they point into, the cache holds its
    own size. Where that is not known, all of it is found there.
    """
    if not np.any(kernel.again):
        return kernel.bytes
    cache = accelerator.l2_cache or profile.memory.cache or np.inf
    return kernel.bytes + kernel.again * (
        1 - np.minimum(1.0, cache / np.maximum(kernel.spread, 1.0))
    )


def memory_time(moved: Number, accelerator: Accelerator, fit: MemoryFit) -> Number:
    """Seconds that `moved` bytes take, without overhead."""
    near = np.minimum(moved, fit.cache) if fit.cache_bandwidth else 0.0
    far = _far_time(moved - near, accelerator, fit)
    return near / fit.cache_bandwidth + far if fit.cache_bandwidth else far


def _moving(kernel: Kernel, moved: Number, accelerator: Accelerator, fit: MemoryFit) -> Number:
    """Seconds that a kernel's bytes take: from the L2 cache those of a fusion that it keeps."""
    chip, time = accelerator, memory_time(moved, accelerator, fit)
    if not (fit.l2 and kernel.kind == "fusion" and chip.l2_cache and chip.cores and chip.clock):
        return time
    near = moved / (fit.l2 * chip.cores * chip.clock)
    kept = np.less_equal(moved, KEPT * chip.l2_cache)
    return np.where(kept, np.minimum(near, time), time)[()]


def _far_time(moved: Number, accelerator: Accelerator, fit: MemoryFit) -> Number:
    bandwidth = fit.bandwidth or accelerator.required("memory_bandwidth")
    return moved / (bandwidth * fit.efficiency)


def computed_flops(kernel: Kernel, profile: Profile) -> Number:
    """FLOPs of a kernel's products without those of scores that fused attention skips."""
    fit = attention.fit_of(kernel, profile)
    return kernel.flops if fit is None else attention.computed_flops(kernel, fit)


def peak_rate(accelerator: Accelerator, dtype: str) -> float:
    """Dense FLOP/s at which a chip multiplies `dtype`, if need be in a wider format."""
    if dtype not in accelerator.peaks and WIDER.get(dtype) in accelerator.peaks:
        return accelerator.peak(WIDER[dtype])
    return accelerator.peak(dtype)


def format_peak(accelerator: Accelerator, dtype: str, profile: Profile) -> float:
    """FLOP/s of products in `dtype` at the peak: as measured, or else `peak_rate`."""
    measured = {fit.dtype: fit.peak for fit in profile.matmul if fit.peak}
    return measured.get(dtype) or peak_rate(accelerator, dtype)


def _matrix(
    kernel: Kernel, accelerator: Accelerator, profile: Profile
) -> tuple[Number, Number, MatmulFit | MemoryFit]:
    """Seconds of the matrix products at full clock, the least that power allows, and their fit."""
    if not np.any(kernel.flops):
        return 0.0, 0.0, profile.memory
    fit = matmul_fit(profile, kernel.dtype, grouped=kernel.kind == "grouped")
    peak = fit.peak or peak_rate(accelerator, kernel.dtype)
    dims = kernel.dims if kernel.kind in ("matmul", "grouped") else ()
    busy = products.busy_time(fit, kernel.flops, dims, kernel.dtype, peak, accelerator)
    return busy, kernel.flops / (peak * products.long_run_rate(fit)), fit


def _vector(kernel: Kernel, profile: Profile) -> Number:
    """Seconds of the vector units: arithmetic and special functions share their issue slots."""
    rates = profile.vector
    return kernel.vector_flops / rates.flops + kernel.transcendentals / rates.transcendentals
