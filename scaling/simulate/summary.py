"""The prediction: step time, memory and collectives of one program on one cluster.

MFU = model FLOPs / (step time x devices x peak of the compute format)
HFU = FLOPs of all matrix products that run / the same

Its bottleneck is the largest part of the step's time. Each kernel belongs to what binds it:
arithmetic, memory bandwidth, or the fixed cost of its start. The largest of these, or waiting for
communication, for the host or for another pipeline stage's work, is the bottleneck.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.host_link import host_bandwidth
from scaling.meshes.memory_pool import TRAINERS, Pool
from scaling.meshes.units import format_size
from scaling.models.accounting import model_flops
from scaling.models.accounting.flops import credited_forward
from scaling.models.accounting.partly_trained import partly_trained_flops
from scaling.profiles.power import BoardPower, power_file
from scaling.profiles.shipped import said_of_untimed
from scaling.program.ir import Collective, Kernel, Number, Operation, as_float, kernels, some
from scaling.run import Run
from scaling.run.reference import reference_model
from scaling.simulate.capacity import (
    LIKELY,
    RESERVE,
    bytes_in_use,
    capacity_of,
    fit_probability,
    needed_bytes,
)
from scaling.simulate.kernels import WIDER, computed_flops, format_peak, peak_rate
from scaling.simulate.prediction import (
    TERMS,
    CollectiveLine,
    HiddenCalls,
    MemoryParts,
    Prediction,
    TimeParts,
    axis_name,
)
from scaling.simulate.step import Priced, running, running_collectives, running_kernels
from scaling.simulate.uncertainty import grade, step_range
from scaling.simulate.unknown import conditional_parts, unknown_parts

Calls = tuple[Collective, Number]  # a collective, and how often a step calls it
# The walk's peak may be this far from the compiler's without a warning: what it is off in the
# programs of the tests. Below LEAST_MEMORY, bytes, rounding each buffer up to 256 bytes is more.
MEMORY_ERROR, LEAST_MEMORY = 0.02, 2**20
LEAST_CALL = 64 * 1024  # bytes of a collective; smaller ones cost latency
ROUNDING = 1e-9  # relative error of float64 sums: shorter times count as 0
BOTTLENECKS = {
    "compute": "compute: kernels limited by arithmetic take",
    "memory": "memory bandwidth: kernels that move more than they compute take",
    "overhead": "overhead: starting kernels that are small for the device takes",
    "bubble": "bubble: pipeline stages without work take",
    "host": "host: the device waits for",
}


def summarize(
    priced: Priced,
    run: Run | None = None,
    causal: bool = False,
    warnings: Iterable[str] = (),
    given: tuple[float | None, float | None] = (None, None),
    pool: Pool = TRAINERS,
    span: tuple[Number, Number] | None = None,
) -> Prediction:
    """Sum up a priced program.

    Args:
        run: the run of this step; None: its tokens and model FLOPs are those `given`.
        causal: count attention's model FLOPs of the unmasked half only.
        warnings: further warnings, to come first.
        given: tokens and model FLOPs of a step without a run; None: not known.
        pool: of XLA.
        span: seconds at the ends of the step's range; None: `step_range`.
    """
    total = as_float(priced.timeline.total)
    devices = math.prod(priced.program.mesh.values())
    low, high = span or step_range(priced)
    software = run.software if run else "jax"
    capacity = capacity_of(priced.cluster, priced.program, software, pool)
    lines, memory = collective_lines(priced), _memory(priced, capacity.bytes, software, pool)
    count, flops = (run.batch.tokens, _model_flops(run, causal)) if run else given
    tokens = None if count is None else _ratio(count, total)
    peak = _peak(priced, run)
    available = peak * devices * total if peak else 0.0
    hfu = _ratio(matrix_flops(priced) * devices, available)
    parts, hidden = priced.timeline, priced.timeline.hidden_communication
    busy = parts.compute + parts.optimizer
    terms = {term: getattr(parts, term) for term in TERMS}
    terms["hidden_communication"] = as_float(np.where(hidden > ROUNDING * parts.total, hidden, 0.0))
    return Prediction(
        name=priced.program.name,
        source=priced.program.source,
        devices=devices,
        step_time=total,
        step_time_low=low,
        step_time_high=high,
        tokens_per_second=tokens,
        tokens_per_second_per_device=None if tokens is None else tokens / devices,
        model_flops=flops,
        mfu=None if flops is None else _ratio(flops, available),
        hfu=hfu,
        time=TimeParts(**terms),
        memory=memory,
        collectives=lines,
        bottleneck=bottleneck(priced, lines, memory),
        grade=grade(priced),
        warnings=(*warnings, *priced.program.warnings, *_warnings(priced, memory, run, hfu)),
        capacity_source=capacity.source,
        evidence=said_of_untimed(priced.profile) if np.any(hfu) else "",
        causal_flops=causal if run or flops is None else None,
        unknown=unknown_parts(priced),
        conditionals=conditional_parts(priced),
        power=board_power(priced.cluster, priced.program.mesh, running(priced), total, busy),
        hidden_calls=hidden_calls(priced) if priced.program.source == "compiled" else None,
    )


def hidden_calls(priced: Priced) -> HiddenCalls:
    """How many of the large collectives of a compiled program run beside compute."""
    large = {c.name for c, _ in running_collectives(priced) if np.max(c.bytes) >= LEAST_CALL}
    return HiddenCalls(sum(is_hidden(priced, name) for name in large), len(large))


def is_hidden(priced: Priced, name: str) -> bool:
    """True for a collective that runs beside compute for half of its time or more."""
    total, exposed = priced.timeline.by_name[name], priced.timeline.exposed_by_name.get(name, 0.0)
    return bool(np.all(exposed <= total / 2))


def _model_flops(run: Run, causal: bool) -> Number:
    """The FLOPs that MFU credits; of a run with frozen parameters without their gradients, and of
    a loss that compares with a frozen model with its forward pass."""
    sizes, train = (run.batch.global_batch, run.batch.seq_len, causal), run.train
    frozen = reference_model(run)
    beside = credited_forward(frozen, *sizes).total if frozen else 0
    if train.trains_all:
        return beside + model_flops(run.model, *sizes)
    return beside + partly_trained_flops(
        run.model, *sizes, lora=train.lora, freeze=train.freeze, trainable=train.trainable
    )


def matrix_flops(priced: Priced) -> Number:
    """FLOPs of all matrix products that one device runs in one step."""
    return sum((kernel.flops * calls for kernel, calls in running_kernels(priced)), 0.0)


def board_power(
    cluster: Cluster,
    mesh: Mapping[str, Number],
    every: Iterable[tuple[Operation, Number]],
    total: Number,
    busy: Number,
) -> BoardPower | None:
    """Watts of a board in the mean of a step: kernels, and bytes of collectives, in and out.

    None where it is not known what the board draws at most.

    Args:
        cluster: of the boards.
        mesh: sizes of its axes.
        every: operations with their calls in a step.
        total, busy: seconds of the step, and of its kernels.
    """
    chip, every = cluster.accelerator, list(every)
    if chip.power is None or not chip.peaks:
        return None
    each = [(op, n) for op, n in every if isinstance(op, Kernel)]
    calls = [(op, n * op.part) for op, n in every if isinstance(op, Collective)]
    moves = lambda c: bool(c.groups) | np.greater(math.prod(mesh[axis] for axis in c.axes), 1)
    has_rate = lambda dtype: dtype in chip.peaks or WIDER.get(dtype) in chip.peaks
    used = sum((k.flops * n / peak_rate(chip, k.dtype) for k, n in each if has_rate(k.dtype)), 0.0)
    moved = sum((k.bytes * n for k, n in each), 0.0)
    sent = sum((2 * c.bytes * n * moves(c) for c, n in calls), 0.0)
    total = np.maximum(total, 1e-12)
    rates = used / total, moved / total, sent / total
    return power_file().board.power(chip.power, *rates, np.minimum(busy / total, 1.0))


def collective_lines(priced: Priced) -> tuple[CollectiveLine, ...]:
    """One line for all identical calls, the longest first."""
    return tuple(line for line, _ in collective_calls(priced))


def collective_calls(priced: Priced) -> list[tuple[CollectiveLine, list[Calls]]]:
    """Each line with its collectives and how often each is called, the longest line first."""
    merged: dict[tuple, list[Calls]] = {}
    for collective, calls in running_collectives(priced):
        cost, size = priced.collectives[collective.name], str(collective.bytes)
        key = (collective.kind, axis_name(collective), size, collective.dtype)
        merged.setdefault((*key, cost.algorithm, cost.level), []).append((collective, calls))
    timeline, lines = priced.timeline, []
    for same in merged.values():
        first = same[0][0]
        cost, names = priced.collectives[first.name], [each.name for each, _ in same]
        line = CollectiveLine(
            kind=first.kind,
            axis=axis_name(first),
            bytes=first.bytes,
            dtype=first.dtype,
            count=sum(calls * each.part for each, calls in same),
            time=sum(timeline.by_name[name] for name in names),
            exposed=sum(timeline.exposed_by_name.get(name, 0.0) for name in names),
            algorithm=cost.algorithm,
            level=cost.level,
            bottleneck=cost.bottleneck,
        )
        lines.append((line, same))
    return sorted(lines, key=lambda each: -np.max(each[0].time))


def bottleneck(priced: Priced, lines: Iterable[CollectiveLine], memory: MemoryParts) -> str:
    """The bottleneck as one sentence; about the largest figures of several configurations."""
    if memory.fits is False:
        needed = memory.peak if memory.needed is None else memory.needed
        over = format_size(float(np.max(needed)) - (memory.capacity or 0.0))
        return f"memory: the peak is {over} above the capacity of a device"
    shares = time_shares(priced)
    most = max(shares, key=lambda name: shares[name])
    waiting = shares["communication"]
    if most != "communication":
        rest = f"; {waiting:.0%} is waiting for communication" if waiting else ""
        return f"{BOTTLENECKS[most]} {shares[most]:.0%} of the step{rest}"
    line = max(lines, key=lambda line: np.max(line.exposed))
    part = float(np.max(line.exposed / priced.timeline.total))
    return (
        f"communication: the device waits for it {waiting:.0%} of the step, most for {line.kind} "
        f"over {line.axis} ({format_size(float(np.max(line.bytes)))} a call, {part:.0%}); "
        f"{line.bottleneck}"
    )


def time_shares(priced: Priced) -> dict[str, float]:
    """Shares of the step: compute, memory and overhead by what binds each kernel, communication,
    bubble, host.

    They sum to 1. Asynchronous kernels run beside the others: waiting for them is the host's.
    """
    timeline, total = priced.timeline, float(np.max(priced.timeline.total))
    largest = lambda seconds: seconds if isinstance(seconds, float) else float(np.max(seconds))
    share = lambda seconds: largest(seconds) / total if total else 0.0
    bound_by = {"compute": 0.0, "memory": 0.0, "overhead": 0.0}
    beside = {kernel.name for kernel, _ in kernels(priced.program) if kernel.asynchronous}
    for name, cost in priced.kernels.items():
        if name not in beside:
            bound = cost.bound if isinstance(cost.bound, str) else str(np.ravel(cost.bound)[0])
            bound_by[bound] += share(timeline.by_name.get(name, 0.0))
    bubble = share(timeline.bubble)
    if bubble:  # it is time of kernels, whatever binds them
        rest = 1 - bubble / sum(bound_by.values())
        bound_by = {name: part * rest for name, part in bound_by.items()}
    waiting = {"communication": timeline.exposed_communication, "host": timeline.host}
    return bound_by | {"bubble": bubble} | {name: share(time) for name, time in waiting.items()}


def _peak(priced: Priced, run: Run | None) -> float | None:
    """FLOP/s of one device in the format that it computes in; None: not known."""
    dtype = run.precision.compute if run else _main_dtype(priced)
    try:
        return format_peak(priced.cluster.accelerator, dtype, priced.profile)
    except InputError:
        return None


def _main_dtype(priced: Priced) -> str:
    flops: dict[str, float] = {"fp32": 0.0}
    for kernel, calls in running_kernels(priced):
        if kernel.dtype and np.any(kernel.flops):
            flops[kernel.dtype] = flops.get(kernel.dtype, 0.0) + float(np.max(kernel.flops * calls))
    return max(flops, key=lambda name: flops[name])


def _memory(priced: Priced, capacity: Number | None, software: str, pool: Pool) -> MemoryParts:
    use = priced.memory
    shown = bytes_in_use(priced.cluster, priced.program, use.peak, software, pool)
    program, likely = priced.program, None
    if capacity is not None:
        likely = fit_probability(program, use.peak, capacity, software)
    fits = None if likely is None else bool(np.all(likely >= LIKELY))
    needed = needed_bytes(program, use.peak, software) if software in RESERVE else None
    parts = {str(category): size for category, size in use.by_category.items()}
    host, least = use.pinned_host, None if capacity is None else float(np.min(capacity))
    stated = priced.cluster.host_memory
    return MemoryParts(
        use.peak,
        **parts,
        pinned_host=host,
        capacity=least,
        fits=fits,
        in_use=shown,
        needed=needed,
        fit_probability=likely,
        host_needed=host * min(priced.cluster.devices_per_node, math.prod(program.mesh.values())),
        host_capacity=None if stated is None else stated.value,
    )


def _warnings(
    priced: Priced, memory: MemoryParts, run: Run | None, hfu: Number | None
) -> Iterable[str]:
    if memory.fits is False:
        need = float(np.max(memory.peak if memory.needed is None else memory.needed))
        needed, have = format_size(need), format_size(memory.capacity or 0.0)
        yield f"does not fit: {needed} needed at the peak, {have} there on one device"
    room, on_host = memory.host_capacity, float(np.max(memory.host_needed))
    if room is not None and on_host > room:
        yield f"does not fit on the host: {format_size(on_host)} needed, {format_size(room)} there"
    if hfu is not None and np.any(hfu > 1):
        ran = sum(computed_flops(k, priced.profile) * calls for k, calls in running_kernels(priced))
        if (share := float(np.max(hfu * ran / matrix_flops(priced)))) <= 1:
            yield f"HFU counts masked scores too: products that run reach {share:.1%} of the peak"
    planned, walked = priced.program.compiler_peak, float(np.max(priced.memory.peak))
    if planned and abs(walked - planned) > max(MEMORY_ERROR * planned, LEAST_MEMORY):
        yield (
            f"memory: {format_size(walked)} at the peak by a walk over the schedule, "
            f"{format_size(planned)} as the compiler planned it ({walked / planned - 1:+.1%})"
        )
    copies = ((k, calls) for k, calls in running_kernels(priced) if some(k.host_bytes))
    copied = (np.max(kernel.host_bytes * calls) for kernel, calls in copies)
    moved = 0.0 if priced.cluster.virtual_devices else float(sum(copied, 0.0))  # one memory there
    if moved:
        rate = host_bandwidth(priced.cluster)
        words = f"priced at {format_size(rate)}/s, which was not measured" if rate else "not priced"
        yield f"{format_size(moved)} move between host and device per step, {words}"
    chip, dtype = priced.cluster.accelerator, run.precision.compute if run else _main_dtype(priced)
    if chip.peaks and dtype not in chip.peaks and _peak(priced, run):
        yield f"{chip.name} has no units for {dtype}: it multiplies in a wider format, at that rate"


def _ratio(amount: Number, per: Number) -> Number | None:
    # no program, a rate that is not known, or an infinite one for no time: nothing to divide by
    return amount / per if np.all(per) and not np.any(np.isnan(per)) else None
