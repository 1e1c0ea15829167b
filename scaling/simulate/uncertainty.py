"""The grade of a prediction, and the range of its step time.

A figure with evidence (measurements with an error, or a datasheet) prices each operation.

    grade    lowest grade among the figures that account for at least 5 % of the step time
    high     step time if each operation takes (1 + h) x its time, h the half range of its evidence;
             of a kernel that of its longest part, and that of latencies for the share of its time
             in which it does not go at the rate of large calls
    low      step time if each operation takes 1 / (1 + h) of its time, and every conditional its
             shortest branch; of the step, and of its high end, it is the longest

Both bounds run the whole schedule again, so communication that is only just hidden widens the
range. At the low end no kernel is faster than the best that its evidence saw, and no bytes than the
peak bandwidth, and kernels and collectives beside one another do not slow each other down. At the
high end kernels do as the most that was measured, and both together take as long as one after the
other (`scaling.profiles.profile.InterferenceFit`). Rows that a gather or scatter reaches by indices
are all in the cache at the low end; at the high end none is, and all updates go to one row. A
kernel of a kind that no fit describes has the grade "datasheet". Where whole steps were measured,
it is never narrower than their errors. Seconds of the host (dispatching the program) have no
evidence: they are taken to be as uncertain as the others are on average. A collective priced by a
line that was measured with another number of devices is extrapolated, as a call with more bytes
than any measured one is. A step with a part that is not known has no high end, and is graded
"unknown".
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.host_link import host_bandwidth
from scaling.profiles.grades import GRADES, UNMEASURED, Grade, grade_of, half_range
from scaling.profiles.profile import Evidence, Profile
from scaling.profiles.samples import Samples
from scaling.program.ir import Collective, Kernel, Number, as_float, collectives, kernels, some
from scaling.simulate.kernels import KernelCost, kernel_time, least_time
from scaling.simulate.products import long_run_rate
from scaling.simulate.step import (
    Costed,
    Priced,
    busy_links,
    device_groups,
    dispatch_time,
    lost_beside,
    times_of,
    with_shortest_branches,
)
from scaling.simulate.timeline import run_schedule
from scaling.simulate.unknown import unknown_parts

PRODUCTS = ("matmul", "grouped", "attention")  # the fits of a profile that have a best rate
NOTICED = 0.05  # share of the step from which on a figure counts for the grade
Sizes = Mapping[tuple[str, str], Number]  # kind of call, dtype or kind of collective -> size


@dataclass(frozen=True)
class PricedShare:
    """Seconds of the step that one kernel, or waiting for a collective or a copy, takes."""

    operation: Kernel | Collective
    evidence: Evidence
    grade: Grade
    seconds: Number


def grade(priced: Priced) -> Grade:
    """Lowest grade among the figures that price a noticeable part of the step.

    Whether its conditionals take their longest branches, as is assumed, or their shortest.

    "unknown" if any part of it has no upper bound (`scaling.simulate.unknown`).
    """
    if unknown_parts(priced):
        return "unknown"
    short = with_shortest_branches(priced)
    used = _noticed(priced) | (set() if short is priced else _noticed(short))
    return max(used, key=GRADES.index) if used else priced.profile.grade


def _noticed(priced: Priced) -> set[Grade]:
    """The grades of figures that price a noticeable part of the step."""
    seconds: dict[tuple[Evidence, Grade], Number] = defaultdict(float)
    for share in priced_shares(priced):
        seconds[share.evidence, share.grade] += share.seconds
    least = NOTICED * priced.timeline.total
    return {grade for (_, grade), time in seconds.items() if np.any(time >= least)}


def step_range(priced: Priced) -> tuple[Number, Number]:
    """Seconds of the step at the low and at the high end of its range, which may be infinite."""
    busy = busy_links(priced.collectives)
    run = partial(run_schedule, priced.program, busy=busy)
    return range_from(priced, *(run(**case).total for case in range_cases(priced)))


def range_cases(
    priced: Costed, known: dict[int, tuple[Number, ...]] | None = None
) -> Iterator[dict[str, Any]]:
    """Options of `run_schedule`: at the low and at the high end, and at the least of all.

    `known` keeps the seconds of calls at these ends, for programs that share their costs.
    """
    times, known = times_of(priced.costs), {} if known is None else known
    chip, profile, host = priced.cluster.accelerator, priced.profile, host_bandwidth(priced.cluster)
    floors, shorter, longer = dict.fromkeys(times, as_float(0.0)), dict(times), dict(times)
    for kernel, _ in kernels(priced.program):
        name, cost = kernel.name, priced.kernels[kernel.name]
        if id(cost) not in known:
            ends = kernel_range(kernel, cost, chip, profile, host)
            known[id(cost)] = *ends, _floor(kernel, cost, chip, profile)
        shorter[name], longer[name], floors[name] = known[id(cost)]
    for op, evidence, grade in _graded(priced):
        if isinstance(op, Collective):
            factor = 1 + half_range(evidence, grade)
            shorter[op.name], longer[op.name] = times[op.name] / factor, times[op.name] * factor
    lost, beside = lost_beside(priced.program, times, priced.cluster, profile), profile.interference
    most, held_up = (beside.most, beside.held_up) if beside else (0.0, 0.0)
    yield {"times": shorter, "shortest": True}
    yield {"times": longer, "lost": dict.fromkeys(lost, most), "held_up": held_up}
    yield {"times": floors, "shortest": True}


def range_from(priced: Priced, low: Number, high: Number, floor: Number) -> tuple[Number, Number]:
    """The ends of the range from the seconds that the step takes in the `range_cases`."""
    step = priced.timeline.total
    total = step - dispatch_time(priced.program, priced.profile.dispatch)
    if not np.all(total):
        low, high = step / (1 + UNMEASURED), step * (1 + UNMEASURED)
    else:
        low, high = low / total, high / total
        if (fit := priced.profile.step) is not None:
            # step times over the predicted one, from errors of whole steps
            whole = 1 + half_range(fit.evidence, fit.evidence.grade)
            lowest, highest = fit.central or (1 / whole, whole)
            low, high = (
                np.maximum(np.minimum(low, lowest), floor / total),
                np.maximum(high, highest),
            )
        low, high = as_float(step * low), as_float(step * high)
    return low, np.inf if unknown_parts(priced) else high


def _floor(kernel: Kernel, cost: KernelCost, accelerator: Accelerator, profile: Profile) -> Number:
    """Least seconds of a call: products like the best measured, bytes at peak bandwidth.

    Products at the peak where the best was measured on another chip; 0 of a CPU, where whole steps
    were measured. Of a kernel that no fit describes only bytes count that a cache does not hold,
    and none of products, which may go over theirs in another way.
    """
    if not profile.overlap or cost.unpriced or kernel.cycles:
        return 0.0
    if not kernel.is_timed:
        held = np.less_equal(kernel.bytes, accelerator.l2_cache or np.inf)
        if kernel.kind != "fusion" or np.all(held):
            return 0.0
        kernel = replace(kernel, bytes=np.where(held, 0.0, kernel.bytes)[()], vector_flops=0.0)
    return least_time(kernel, kernel.bytes, accelerator, _at_best(profile))


def _at_best(profile: Profile) -> Profile:
    """The profile with the best rates that nothing speaks against."""
    own = lambda fit: fit if fit.evidence.grade != "datasheet" else replace(fit, best=1.0)
    return _bounded("best", profile, own, lambda memory: 1.0)


def _long_run(profile: Profile) -> Profile:
    """The profile with, for the best rates, those of large calls that go on for long."""
    slow = lambda fit: replace(fit, best=long_run_rate(fit)) if hasattr(fit, "sustained") else fit
    return _bounded("long run", profile, slow, lambda memory: memory.efficiency)


def _bounded(
    name: str, profile: Profile, of_fit: Callable[[Any], Any], of_memory: Callable[[Any], float]
) -> Profile:
    """The profile with other best rates, made once and kept by a name."""
    if (name,) not in profile.cache:
        fits: dict[str, Any] = {
            each: tuple(map(of_fit, getattr(profile, each))) for each in PRODUCTS
        }
        memory = replace(profile.memory, best=of_memory(profile.memory))
        profile.cache[name,] = replace(profile, memory=memory, **fits)
    found: Profile = profile.cache[name,]
    return found


def kernel_range(
    kernel: Kernel,
    cost: KernelCost,
    accelerator: Accelerator,
    profile: Profile,
    host: float | None = None,
) -> tuple[Number, Number]:
    """Seconds of one call at the low and at the high end of its range.

    Args:
        cost: what the call was priced at.
        host: as of `scaling.simulate.kernels.kernel_time`.
    """
    if some(kernel.chain) and profile.overlap:
        bare = replace(kernel, chain=0.0)
        priced = replace(cost, time=cost.time - kernel.chain, overhead=cost.overhead - kernel.chain)
        low, high = kernel_range(bare, priced, accelerator, profile, host)
        return low + kernel.chain / kernel.error, high + kernel.chain * kernel.error
    # by others, and its ends hold the errors of their times
    timed = kernel.error > 1 and not kernel.is_timed
    factor = 1 if timed else 1 + kernel_half_range(kernel, cost, accelerator, profile)
    least, most = kernel_ends(kernel, cost, accelerator, profile, host)
    floor = _floor(_in_cache(kernel, accelerator, profile), cost, accelerator, profile)
    return np.maximum(least / factor, floor), most * factor


def kernel_ends(
    kernel: Kernel,
    cost: KernelCost,
    accelerator: Accelerator,
    profile: Profile,
    host: float | None = None,
) -> tuple[Number, Number]:
    """Seconds of a call by what nobody states, without the errors of figures.

    Rows may lie in the cache or not (`row_range`), and so may what a product or attention moves.
    """
    if cost.unpriced:
        return cost.time, cost.time
    if np.any(kernel.again) or np.any(kernel.clashes) or not kernel.is_timed:
        return row_range(kernel, accelerator, profile, host)
    near = _in_cache(kernel, accelerator, profile)
    if near is kernel:
        return cost.time, cost.time
    return kernel_time(near, accelerator, profile, host).time, cost.time


def _in_cache(kernel: Kernel, accelerator: Accelerator, profile: Profile) -> Kernel:
    """A product or attention without the bytes of what the L2 cache can hold together."""
    cache = accelerator.l2_cache
    if not (profile.overlap and cache and kernel.kind in ("matmul", "grouped", "attention")):
        return kernel
    held = np.less_equal(kernel.bytes, cache)
    return replace(kernel, bytes=np.where(held, 0.0, kernel.bytes)[()]) if np.any(held) else kernel


def kernel_half_range(
    kernel: Kernel, cost: KernelCost, accelerator: Accelerator, profile: Profile
) -> Number:
    """Half range of a call, relative: s x that of latencies + (1 - s) x that of its longest part.

    s is `latency_share`.
    """
    above = _is_above(_sizes(kernel), largest_measured(profile.samples))

    def half(evidence: Evidence, latency: bool = False) -> float:
        grade = grade_of(evidence, above) if kernel.is_timed else "datasheet"
        return half_range(evidence, grade, latency)

    parts = np.broadcast_arrays(*(seconds for seconds, _ in cost.parts))
    longest = np.argmax(np.stack(parts), axis=0)
    wide, late = (np.array([half(e, how) for _, e in cost.parts])[longest] for how in (False, True))
    if np.all(wide == late):
        return wide
    share = latency_share(kernel, cost, accelerator, profile)
    return share * late + (1 - share) * wide


def latency_share(
    kernel: Kernel, cost: KernelCost, accelerator: Accelerator, profile: Profile
) -> Number:
    """Share of a call in which neither FLOPs nor bytes go at the rate of large calls."""
    if cost.unpriced:
        return 0.0
    least = least_time(kernel, cost.moved, accelerator, _long_run(profile))
    return 1 - np.minimum(least / np.maximum(cost.time, np.finfo(float).tiny), 1.0)


def row_range(
    kernel: Kernel, accelerator: Accelerator, profile: Profile, host: float | None = None
) -> tuple[Number, Number]:
    """Seconds of a call whose indices find every row in the cache, and of one that finds none.

    In the second all updates go to one row besides, and wait for one another. A product of a kind
    that neither a fit nor published times describe takes as long as its bytes in the first; where
    published times are off by `error`, products go as much faster there, but no faster than others
    do, and as much slower in the second.
    """
    error, share = kernel.error, kernel.share
    counts = kernel.is_timed or error > 1
    none = replace(
        kernel,
        again=0.0,
        clashes=0.0,
        flops=kernel.flops * counts,
        share=max(share, min(1.0, share * error)),
    )
    all_again = replace(
        kernel,
        bytes=kernel.bytes + kernel.again,
        again=0.0,
        clashes=0.0,
        share=share / error,
    )
    low, high = (kernel_time(k, accelerator, profile, host).time for k in (none, all_again))
    clock = accelerator.clock
    return low, np.maximum(high, kernel.clashes / clock) if clock else high


def priced_shares(priced: Priced) -> Iterator[PricedShare]:
    """The parts of the step time that have evidence: kernels, and waits for what runs beside."""
    timeline = priced.timeline
    for operation, evidence, grade in _graded(priced):
        is_beside = isinstance(operation, Collective) or operation.asynchronous
        named = timeline.exposed_by_name if is_beside else timeline.by_name
        seconds = named.get(operation.name)
        if seconds is not None:
            yield PricedShare(operation, evidence, grade, seconds)


def _graded(priced: Costed) -> Iterator[tuple[Kernel | Collective, Evidence, Grade]]:
    """Each kernel and collective, of all branches, with its evidence and the grade for its size."""
    largest = largest_measured(priced.profile.samples)
    for kernel in {kernel.name: kernel for kernel, _ in kernels(priced.program)}.values():
        evidence = priced.kernels[kernel.name].evidence
        grade = grade_of(evidence, _is_above(_sizes(kernel), largest))
        yield kernel, evidence, grade if kernel.is_timed else "datasheet"
    for collective in {call.name: call for call, _ in collectives(priced.program)}.values():
        if not (collective.axes or collective.groups):
            continue
        cost = priced.collectives[collective.name]
        if cost.evidence is not None:
            above = _is_above({("collective", collective.kind): collective.bytes}, largest)
            if cost.algorithm == "measured":  # others link by link, which says who shares each
                count, ranks = device_groups(collective, priced.program, priced.cluster).shape
                shapes = {(f.kind, f.ranks, f.groups) for f in priced.profile.collectives}
                above = above or (collective.kind, ranks, count) not in shapes
            yield collective, cost.evidence, grade_of(cost.evidence, above or cost.extrapolated)


def largest_measured(samples: Samples) -> Sizes:
    """The largest call of each kind that a profile was fitted to; smaller ones cost less.

    A batched product counts as one of its products: repetitions scale linearly.
    """
    pairs = [(("matmul", p.dtype), float(p.m * p.n * p.k)) for p in samples.matmul]
    pairs += [(("keys", ""), float(p.keys)) for p in samples.attention]
    pairs += [(("head_dim", ""), float(p.head_dim)) for p in samples.attention]
    pairs += [(("memory", ""), float(p.bytes)) for p in samples.memory]
    pairs += [(("collective", p.kind), float(p.bytes)) for p in samples.collective]
    return dict(sorted(pairs, key=lambda pair: pair[1]))  # of each key the last, the largest


def _sizes(kernel: Kernel) -> Sizes:
    """The size of a kernel that is held against the largest that was measured."""
    if kernel.kind == "attention" and kernel.dims:
        return {("keys", ""): kernel.dims[3], ("head_dim", ""): kernel.dims[4]}
    if kernel.kind == "matmul" and kernel.dims:
        _, m, n, k = kernel.dims
        return {("matmul", kernel.dtype): m * n * k}
    return {} if some(kernel.flops) else {("memory", ""): kernel.bytes}


def _is_above(sizes: Sizes, largest: Sizes) -> bool:
    """Return True if a size is above the largest one; False where that is not known."""
    return any(some(size > largest[key]) for key, size in sizes.items() if key in largest)
