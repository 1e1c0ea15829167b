"""How each figure of a prediction comes about: its formula with its numbers, the sources of the
chip's constants, and the section of "How to Scale Your Model" that teaches it.

    compute 5.52 s = calls x seconds, summed over 251 kernels; most for
      256 x matmul gemm_fusion_dot.32: 1.21 ms = max(962 GFLOP / 794 TFLOP/s, 352 MB / ...) + 0 s
      794 TFLOP/s: 80.3% of 989 TFLOP/s, the peak of bf16 (NVIDIA H100 ... whitepaper)
      taught in: All About Rooflines, https://jax-ml.github.io/scaling-book/roofline/#...
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scaling.meshes.accelerator import peak_name
from scaling.meshes.units import (
    format_calls,
    format_memory,
    format_rate,
    format_size,
    format_time,
    percent,
)
from scaling.profiles.grades import grade_of
from scaling.program.ir import Collective, Kernel
from scaling.report.fits import link_constants
from scaling.simulate.kernels import WIDER, computed_flops
from scaling.simulate.prediction import Prediction, axis_name
from scaling.simulate.step import (
    Priced,
    buffers_of,
    running,
    running_collectives,
    running_kernels,
    temporaries,
)

BOOK = "https://jax-ml.github.io/scaling-book"
GUIDE = {  # term -> section of "How to Scale Your Model" (Austin et al., 2025)
    "compute": ("All About Rooflines", "roofline/#where-does-the-time-go"),
    "optimizer": ("All About Rooflines", "roofline/#where-does-the-time-go"),
    "communication": ("How to Think About GPUs", "gpus/#how-do-collectives-work-on-gpus"),
    "torus": ("Sharded Matrices and How to Multiply Them", "sharding/"),
    "bubble": ("How to Parallelize a Transformer for Training", "training/#pipelining"),
    "memory": ("All the Transformer Math You Need to Know", "transformers/#gradient-checkpointing"),
    "mfu": ("All the Transformer Math You Need to Know", "transformers/#transformer-accounting"),
}


def formulas(priced: Priced, prediction: Prediction) -> str:
    """One paragraph for each term that is not zero, of one configuration."""
    lines = ["how each figure comes about"]
    for taught, paragraph in (
        ("compute", _kernels(priced, "compute")),
        ("optimizer", _kernels(priced, "optimizer")),
        ("torus" if priced.cluster.torus is not None else "communication", _waiting(priced)),
        ("bubble", _bubble(priced)),
        ("", _host(priced)),
        ("memory", _memory(prediction)),
        ("mfu", _mfu(priced, prediction)),
    ):
        texts = list(paragraph)
        if texts and taught:
            title, place = GUIDE[taught]
            texts.append(f"  taught in: {title}, {BOOK}/{place}")
        lines += [f"  {text}" for text in texts]
    return "\n".join(lines)


def _kernels(priced: Priced, term: str) -> Iterator[str]:
    """Compute, or the optimizer: a sum over kernels, and the formula of the longest."""
    found = [
        (kernel, calls)
        for kernel, calls in running_kernels(priced)
        if not kernel.asynchronous and (kernel.origin.phase == "optimizer") == (term == "optimizer")
    ]
    seconds = getattr(priced.timeline, term)
    if not found or not seconds:
        return
    by_name = priced.timeline.by_name
    kernel, calls = max(found, key=lambda item: float(np.max(by_name[item[0].name])))
    count = f"{len(found)} kernel{'s' * (len(found) > 1)}"
    yield f"{term} {format_time(seconds)} = calls x seconds, summed over {count}; most for"
    formula, *rates = _kernel(kernel, priced)
    yield f"  {format_calls(calls)} x {kernel.kind} {kernel.name}: {formula}"
    yield from (f"  {text}" for text in rates)


def _kernel(kernel: Kernel, priced: Priced) -> Iterator[str]:
    """`1.21 ms = max(962 GFLOP / 794 TFLOP/s, 352 MB / 3.14 TB/s) + 0 s`, and a line for each of
    the rates: its share of the chip's, with the source of that."""
    chip, cost = priced.cluster.accelerator, priced.kernels[kernel.name]
    source = lambda name: f" ({figure.source})" if (figure := chip.figures.get(name)) else ""
    dtype = kernel.dtype if kernel.dtype in chip.peaks else WIDER.get(kernel.dtype, kernel.dtype)
    parts, shares = [], []
    if np.any(cost.compute):
        computed = computed_flops(kernel, priced.profile)  # without scores that attention skips
        flops = float(computed or kernel.vector_flops)
        rate = flops / float(cost.compute)
        parts.append(f"{format_rate(flops, 'FLOP')} / {format_rate(rate, 'FLOP/s')}")
        if kernel.flops and (peak := chip.peaks.get(dtype)):
            whole = f"{format_rate(peak, 'FLOP/s')}, the peak of {dtype}{source(peak_name(dtype))}"
            shares.append(f"{format_rate(rate, 'FLOP/s')}: {percent(rate / peak)} of {whole}")
            if computed < kernel.flops:
                all_ = format_rate(float(kernel.flops), "FLOP")
                shares.append(f"of {all_} for all scores, masked ones too")
    if np.any(cost.memory):
        rate = float(cost.moved / cost.memory)
        parts.append(f"{format_memory(cost.moved)} / {format_rate(rate)}")
        if whole_rate := chip.memory_bandwidth:
            whole = f"{format_rate(whole_rate)} of the memory{source('memory_bandwidth')}"
            shares.append(f"{format_rate(rate)}: {percent(rate / whole_rate)} of {whole}")
    both = ", ".join(parts)
    work = f"max({both})" if priced.profile.overlap or len(parts) < 2 else f"{both}, overlapping"
    summed = np.isclose(cost.time, cost.compute + cost.memory + cost.overhead)
    if kernel.kind == "attention" and len(parts) == 2 and summed:
        work = " + ".join(parts)
    yield f"{format_time(cost.time)} = {work} + {format_time(cost.overhead)}"
    yield from (*shares, f"shares: {grade_of(cost.evidence)}, {cost.evidence.source}")


def _waiting(priced: Priced) -> Iterator[str]:
    """Exposed communication, and the formula of the collective that is waited for longest."""
    line, exposed = priced.timeline, priced.timeline.exposed_by_name
    found = [(step, n) for step, n in running_collectives(priced) if exposed.get(step.name)]
    if not found:
        return
    step, calls = max(found, key=lambda item: float(np.max(exposed[item[0].name])))
    yield (
        f"waiting for communication {format_time(line.exposed_communication)} = union of all "
        f"communication less the {format_time(line.hidden_communication)} beside compute; most for"
    )
    formula = collective_formula(step, priced)
    yield f"  {format_calls(calls)} x {step.kind}[{axis_name(step)}] {formula}"
    yield from (f"  {text}" for text in link_constants(step, priced))


def collective_formula(step: Collective, priced: Priced) -> str:
    """Return the time of one call as the sum that it is:

    `347 us = 20 us of latency + 318 us for 112 MiB by ring + 9 us of its knee: NVLink ...`."""
    cost = priced.collectives[step.name]
    time, least = float(cost.time), float(cost.lower_bound)
    latency = knee = 0.0
    if chosen := cost.chosen:
        latency = chosen.latency
        knee = float(chosen.seconds(step.bytes) - replace(chosen, knee=0.0).seconds(step.bytes))
    size = f"for {format_size(step.bytes)} by {cost.algorithm}"
    terms = (latency, "of latency"), (time / step.part - latency - knee, size), (knee, "of knee")
    sum_ = " + ".join(f"{format_time(seconds)} {words}" for seconds, words in terms if seconds > 0)
    part = f"{percent(step.part)} of a call of " if step.part < 1 else ""
    bound = f"; {time / least:.2f} x its bytes over the full links" if least else ""
    evidence = f"; {cost.evidence.grade}" if cost.evidence else ""
    return f"{format_time(time)} = {part}{sum_}: {cost.bottleneck}{bound}{evidence}"


def _bubble(priced: Priced) -> Iterator[str]:
    seconds = priced.timeline.bubble
    if np.any(seconds):
        idle = priced.program.mesh["stage"] - 1
        yield (
            f"pipeline bubble {format_time(seconds)} = (stages - 1) = {idle} passes forward and "
            "backward in which a stage has no work"
        )


def _host(priced: Priced) -> Iterator[str]:
    fit, seconds = priced.profile.dispatch, priced.timeline.host
    issued = sum(op.issue * float(np.max(calls)) for op, calls in running(priced))
    if issued:
        yield (
            f"waiting for the host {format_time(seconds)}: it issues for {format_time(issued)}, in "
            "order, and runs ahead of the device where it can"
        )
    if fit is None or not np.any(seconds):
        return
    count, fresh = buffers_of(priced.program), float(np.max(temporaries(priced.program)))
    fresh = fresh if fresh > fit.kept else 0.0
    yield (
        f"waiting for the host {format_time(seconds)} = {format_time(fit.overhead)} a call + "
        f"{count:,} buffers x {format_time(fit.per_buffer)} + {format_memory(fresh)} of fresh "
        f"pages / {format_rate(fit.fresh_bandwidth)}; {fit.evidence.grade}, {fit.evidence.source}"
    )


def _memory(prediction: Prediction) -> Iterator[str]:
    memory = prediction.memory
    names = ("parameters", "gradients", "optimizer_state", "activations", "temporary")
    parts = [(name, getattr(memory, name)) for name in (*names, "communication")]
    sum_ = " + ".join(f"{format_memory(n)} {name.replace('_', ' ')}" for name, n in parts if n)
    if sum_:
        yield f"memory {format_memory(memory.peak)} = {sum_}"


def _mfu(priced: Priced, prediction: Prediction) -> Iterator[str]:
    """Model FLOPs over what the devices could do."""
    if prediction.mfu is None or prediction.model_flops is None:
        return
    flops, step = float(prediction.model_flops), float(prediction.step_time)
    peak = flops / (float(prediction.mfu) * step * prediction.devices)
    yield (
        f"MFU {percent(prediction.mfu)} = {format_rate(flops, 'FLOP')} / ({format_time(step)} x "
        f"{prediction.devices:,} devices x {format_rate(peak, 'FLOP/s')})"
    )
