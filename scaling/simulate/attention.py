"""Seconds of a fused attention: tiles over cores, each walking its keys, as one form for all chips.

    score   = hypot(products / (peak x efficiency), softmax / special functions)    all cores
    walk    = (visible keys + start) x tile x cores x score                         of one tile
    compute = walk x waves       all tiles alike: whole waves; masked: the longest walk at least
    time    = overhead + compute + bytes / (bandwidth x memory)

A tile is so many queries of one head; of a backward pass so many keys, which walks the queries.
Products and the softmax of another block run at once, but each waits for the other: their times
add up as squares. Libraries round head dimensions up. Decoding (few queries) packs the queries of
all heads that share keys into one tile and splits the keys over the cores that are left; it loads
while it computes:

    time    = overhead + combine + max(compute, (bytes + start's) / (bandwidth x memory))

Queries that fill no tile take no longer than if 16 of them were decoded at a time.

FlashAttention-2 (arXiv 2307.08691), -3 (2407.08608), Flash-Decoding (Dao et al., 2023-10).
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from scaling.meshes.accelerator import Accelerator
from scaling.profiles.profile import AttentionFit, AttentionPass, Profile, attention_fit
from scaling.program.ir import Kernel, Number
from scaling.program.ops import attention_flops

DECODE_QUERIES = 16  # rows of the smallest matrix instruction, up to which a call only decodes
ROUNDED = 32  # head dimensions are a multiple of it (FlashAttention's kernels: 64, 96, 128, ...)
ROUNDING = 1e-9  # relative, of scores that no mask hides
SPLIT_KEYS = 512  # of a sequence from which decoding splits them (step in FlashInfer's and FA3's)


@dataclass(frozen=True)
class AttentionCost:
    """Seconds of a fused attention."""

    time: Number
    compute: Number
    memory: Number
    overhead: Number


def fit_of(kernel: Kernel, profile: Profile) -> AttentionFit | None:
    """The fit that prices an attention; None for other kernels, or if it is priced as products."""
    if kernel.kind != "attention":
        return None
    direction: AttentionPass = "backward" if kernel.origin.phase == "backward" else "forward"
    if direction == "forward" and kernel.dims and np.all(kernel.dims[2] <= DECODE_QUERIES):
        direction = "decode"
    return attention_fit(profile, direction, kernel.dtype, kernel.library)


def attention_time(
    kernel: Kernel, fit: AttentionFit, accelerator: Accelerator, profile: Profile, peak: float
) -> AttentionCost:
    """Price one call; `peak` is the chip's FLOP/s in the format of the kernel."""
    cost = _time(kernel, fit, accelerator, profile, peak)
    if fit.direction != "forward" or fit.tile is None or not kernel.dims:
        return cost
    queries = kernel.dims[2]
    few = np.greater(queries, DECODE_QUERIES) & np.less(queries, fit.tile)
    decode = attention_fit(profile, "decode", kernel.dtype, kernel.library)
    if not np.any(few) or decode is None or decode.direction != "decode":
        return cost
    other = _time(kernel, replace(decode, best=fit.best), accelerator, profile, peak)
    shorter = few & np.less(other.time, cost.time)
    pairs = ((getattr(other, f.name), getattr(cost, f.name)) for f in fields(cost))
    return AttentionCost(*(np.where(shorter, *pair)[()] for pair in pairs))


def _time(
    kernel: Kernel, fit: AttentionFit, accelerator: Accelerator, profile: Profile, peak: float
) -> AttentionCost:
    bandwidth = profile.memory.bandwidth or accelerator.required("memory_bandwidth")
    memory = kernel.bytes / (bandwidth * (fit.memory or profile.memory.efficiency))
    overhead = fit.overhead * np.greater(kernel.flops, 0)
    least = computed_flops(kernel, fit) / (peak * kernel.share)
    beside = fit.memory is None or fit.direction == "decode"
    if not kernel.dims:
        compute, beside = least / fit.efficiency, True
    else:
        softmax = fit.softmax / profile.vector.transcendentals
        score = np.hypot(_products(kernel, ROUNDED) / (peak * fit.efficiency), softmax)
        score = score * np.greater(kernel.flops, 0) / kernel.share
        if fit.direction == "decode":
            scores, loaded = _decoded(kernel, fit)
            compute, memory = score * scores, memory * loaded
            overhead = overhead + fit.combine * np.greater_equal(kernel.dims[3], SPLIT_KEYS)
        else:
            compute = score * _walked(kernel, fit, accelerator.cores)
    busy = np.maximum(compute, memory) if beside else compute + memory
    return AttentionCost(np.maximum(busy + overhead, least / fit.best), compute, memory, overhead)


def computed_flops(kernel: Kernel, fit: AttentionFit) -> Number:
    """FLOPs of the products of the scores that a kernel computes, masked ones that it skips not."""
    return kernel.flops * np.maximum(kernel.visible, fit.executed)


def _scores(kernel: Kernel, fit: AttentionFit) -> Number:
    return computed_flops(kernel, fit) / _products(kernel, 1)


def _products(kernel: Kernel, rounded: int) -> Number:
    """FLOPs of a score, with head dimensions that are a multiple of `rounded`."""
    head = kernel.dims[4]
    value = np.where(np.equal(kernel.value_dim, 0), head, kernel.value_dim)
    head, value = (rounded * np.ceil(dim / rounded) for dim in (head, value))
    return attention_flops(1.0, head, value, kernel.origin.phase == "backward")


def _decoded(kernel: Kernel, fit: AttentionFit) -> tuple[Number, Number]:
    """Scores that decoding multiplies, in tiles of 16 rows; what it loads over its bytes.

    Keys are loaded again for each 16 queries.
    """
    _, heads, queries, keys, _ = kernel.dims
    groups = np.where(np.equal(kernel.kv_heads, 0), heads, kernel.kv_heads)
    rows = queries * heads / groups
    padded = DECODE_QUERIES * np.ceil(rows / DECODE_QUERIES)
    passes = np.maximum(queries / DECODE_QUERIES, 1)
    return _scores(kernel, fit) * padded / rows, passes * (1 + fit.start / (keys + rows))


def _walked(kernel: Kernel, fit: AttentionFit, cores: int | None) -> Number:
    """Scores whose time passes until the last core has done: computed, masked and waited for."""
    batch, heads, queries, keys, _ = kernel.dims
    rows, across = (keys, queries) if fit.direction == "backward" else (queries, keys)
    mean = _scores(kernel, fit) / np.maximum(batch * heads * rows, 1.0)
    if fit.tile is None or cores is None:
        return batch * heads * rows * (mean + fit.start)
    masked = np.less(mean, across * (1 - ROUNDING))
    walk = np.minimum(mean + masked * fit.tile / 2, across) + fit.start
    longest = np.minimum(2 * mean, across) + fit.start
    waves = batch * heads * np.ceil(rows / fit.tile) / cores
    whole = np.ceil(waves) * (across + fit.start)
    uneven = np.where(waves <= 1, longest, np.maximum(longest, (waves + 0.5) * walk))
    return fit.tile * cores * np.where(masked, np.minimum(uneven, whole), whole)
