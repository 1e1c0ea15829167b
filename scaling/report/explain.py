"""The explanation of a prediction: the longest operations beside the compiler's own estimate, what
fills the memory at its peak, the evidence of every figure, and the discrepancies from the expected
program.

    operation            where               calls  a call   bound    rate         XLA's estimate
    matmul gemm_fusion   forward layers/mlp     80  1.53 ms  compute  730 TFLOP/s         1.41 ms
"""

from collections.abc import Sequence

import numpy as np

from scaling.comparing.discrepancy import Discrepancy
from scaling.meshes.units import format_calls, format_memory, format_rate, format_time, percent
from scaling.program.ir import Collective, Kernel, Number, Operation, operations, unattributed
from scaling.report.formatting import columns, evidence_words
from scaling.simulate.kernels import computed_flops
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.prediction import axis_name
from scaling.simulate.step import Priced, running
from scaling.simulate.uncertainty import PricedShare, priced_shares

HEAD = ("operation", "where", "calls", "a call", "bound", "rate", "XLA's estimate")
MOST_LINES = 25
SHOWN = 0.001  # share of the memory from which on a line is shown


def explanation(priced: Priced, discrepancies: Sequence[Discrepancy] = ()) -> str:
    """The longest operations, both estimates in all, the memory, the evidence, all discrepancies.

    `discrepancies` are those of its audit, also below 1 % of the step.
    """
    unknown = float(unattributed(priced.program))  # 1: a step that is not ours has no such names
    share = f"{percent(unknown)} of the bytes that kernels move belong to no known part"
    parts = [
        _operations(priced),
        _agreement(priced),
        *[f"{share} of the model"] * (unknown < 1),
        _memory(priced),
        _evidence(priced),
    ]
    if discrepancies:
        parts.append("\n".join(["unlike the expected program", *(f"  {d}" for d in discrepancies)]))
    return "\n\n".join(parts)


def _operations(priced: Priced) -> str:
    by_name = priced.timeline.by_name
    found = sorted(running(priced), key=lambda item: -np.max(by_name[item[0].name]))
    rows = [HEAD, *(_row(step, calls, priced) for step, calls in found[:MOST_LINES])]
    if all(row[-1] == "-" for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    lines = columns(rows, left=(0, 1, 4))
    rest = sum(float(np.max(by_name[step.name])) for step, _ in found[MOST_LINES:])
    if rest:
        lines.append(f"and {len(found) - MOST_LINES} more, {format_time(rest)} together")
    return "\n".join(lines)


def _row(step: Kernel | Collective, calls: Number, priced: Priced) -> tuple[str, ...]:
    estimate = "-" if step.estimate is None else format_time(float(np.max(step.estimate)))
    if isinstance(step, Collective):
        cost = priced.collectives[step.name]
        seconds, bound = cost.time, str(cost.level)
        label = f"{step.kind}[{axis_name(step)}]"  # names of closed forms hold it too
        name = " ".join((label, *step.name.replace(label, "").split()))
        amount, unit = step.bytes * step.part, "B/s"
    else:
        price = priced.kernels[step.name]
        seconds, bound = price.time, str(price.bound)
        name, amount = f"{step.kind} {step.name}", computed_flops(step, priced.profile)
        amount = amount or price.moved
        unit = "FLOP/s" if step.flops else "B/s"
    rate = format_rate(float(amount / seconds), unit) if seconds else "-"
    return (
        name,
        _where(step),
        format_calls(calls),
        format_time(float(seconds)),
        bound,
        rate,
        estimate,
    )


def _where(step: Operation) -> str:
    return f"{step.origin.phase} {step.origin.layer}".strip() or "-"


def _agreement(priced: Priced) -> str:
    """Sums of both estimates over the operations for which the compiler has one."""
    lines = []
    for kind, costs in ((Kernel, priced.kernels), (Collective, priced.collectives)):
        pairs = [
            (float(costs[step.name].time * calls), float(step.estimate * calls))
            for step, calls in running(priced)
            if isinstance(step, kind) and step.estimate is not None
        ]
        if pairs:
            ours, theirs = (format_time(sum(column)) for column in zip(*pairs, strict=True))
            some = f"{len(pairs)} {kind.__name__.lower()}{'s' * (len(pairs) > 1)}"
            lines.append(f"{some} with an estimate of XLA's own: ours {ours}, XLA's {theirs}")
    return "\n".join(lines) or "XLA has no estimate of its own for this program"


def _memory(priced: Priced) -> str:
    """The buffers alive at the peak, by category and by the part of the model that fills them."""
    writers: dict[int, str] = {}
    where: dict[str, str] = {}
    for step, _ in operations(priced.program.schedule):
        if step.origin:
            where.setdefault(step.name, f" ({_where(step)})")
        for index in step.writes:
            writers.setdefault(index, _where(step))
    found: dict[tuple[str, str], list[float]] = {}
    for index in priced.memory.buffers:
        buffer = priced.program.buffers[index]
        size = float(np.max(buffer.bytes))
        if size and buffer.category in ON_DEVICE:
            made = "kept" if buffer.persistent else writers.get(index, "-")
            found.setdefault((buffer.category, made), []).append(size)
    peak, at = float(np.max(priced.memory.peak)), priced.memory.at
    head = ("  category", "filled by", "buffers", "size")
    rows = [
        (f"  {category.replace('_', ' ')}", made, f"{len(sizes):,}", format_memory(sum(sizes)))
        for (category, made), sizes in sorted(found.items(), key=lambda item: -sum(item[1]))
        if sum(sizes) >= SHOWN * peak
    ]
    title = f"memory at its peak of {format_memory(peak)}, in {at}{where.get(at, '')}"
    return "\n".join([title, *columns([head, *rows], left=(0, 1))])


def _evidence(priced: Priced) -> str:
    """The evidence of the step's seconds, the largest share first."""
    found: dict[str, list[PricedShare]] = {}
    for share in priced_shares(priced):
        if share.seconds:
            found.setdefault(evidence_words(share.evidence, share.grade), []).append(share)
    total = float(priced.timeline.total) or 1.0
    seconds = lambda item: float(sum(share.seconds for share in item[1]))
    lines = [f"figures of profile {priced.profile.name}, by share of the step"]
    for words, shares in sorted(found.items(), key=lambda item: -seconds(item)):
        kinds = ", ".join(dict.fromkeys(share.operation.kind for share in shares))
        part = percent(seconds(("", shares)) / total)
        lines.append(f"  {part:>5}  {kinds}, {words}")
    return "\n".join(lines)
