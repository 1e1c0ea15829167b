"""What of a step nobody can price: unknown functions, loops of unknown length, rates not known.

    kernel   counts by its bytes, and by the FLOPs that its shapes tell: it takes as long at least
    loop     counts once
    format   products in it, of which the chip has no rate, take as long as their bytes

None of them has an upper bound, however short it looks: a kernel may loop over what it has read. So
one of them is enough for the step to have none.

Nor does a program say which branch of a conditional runs. The step, its parts and the high end of
its range assume the longest branch of each; the low end the shortest (`simulate.uncertainty`).
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce

import numpy as np

from scaling.program.ir import (
    Block,
    Branch,
    Kernel,
    Loop,
    Number,
    Operation,
    Wait,
    conditionals,
    kernels,
    operations,
)
from scaling.simulate.prediction import Conditional, UnknownPart
from scaling.simulate.side_by_side import later, sooner
from scaling.simulate.step import Priced

Span = tuple[Number, Number]  # s of the shortest and of the longest way through a block


def unknown_parts(priced: Priced) -> tuple[UnknownPart, ...]:
    """What is not known of the step, the longest first."""
    found: dict[tuple[str, str], UnknownPart] = {}
    for part in (*_kernels(priced), *_loops(priced)):
        before = found.get((part.kind, part.name))
        calls = part.calls + (before.calls if before else 0)
        time = part.time + (before.time if before else 0.0)
        found[part.kind, part.name] = UnknownPart(part.kind, part.name, calls, time)
    return tuple(sorted(found.values(), key=lambda part: -float(part.time)))


def _kernels(priced: Priced) -> Iterator[UnknownPart]:
    """Unknown kernels, those of branches that seem the shorter ones too."""
    for kernel, calls in kernels(priced.program):
        cost = priced.kernels[kernel.name]
        if kernel.unknown:
            yield UnknownPart("kernel", kernel.unknown, calls, calls * cost.time)
        elif cost.unpriced:
            yield UnknownPart("format", cost.unpriced, calls, calls * cost.time)


def _loops(priced: Priced) -> Iterator[UnknownPart]:
    """Loops by where they stand; those of one place may be inside of each other."""
    calls: dict[str, Number] = defaultdict(float)
    kernels_in: dict[str, set[str]] = defaultdict(set)
    for loop, times in _unknown_loops(priced.program.schedule, 1):
        calls[loop.unknown] += times
        inside = (step for step, _ in operations(loop.body) if isinstance(step, Kernel))
        kernels_in[loop.unknown] |= {kernel.name for kernel in inside}
    for place, names in kernels_in.items():
        time = sum((priced.timeline.by_name.get(name, 0.0) for name in names), 0.0)
        yield UnknownPart("loop", place, calls[place], time)


def _unknown_loops(block: Block, times: Number) -> Iterator[tuple[Loop, Number]]:
    """Every loop of unknown length, and how often it begins in a step."""
    for step in block:
        if isinstance(step, Loop):
            if step.unknown:
                yield step, times
            yield from _unknown_loops(step.body, times * step.trips)
        elif isinstance(step, Branch):
            for branch in step.branches:
                yield from _unknown_loops(branch, times)


def conditional_parts(priced: Priced) -> tuple[Conditional, ...]:
    """The conditionals of a step, those of one line as one, the largest difference first."""
    found: dict[str, Conditional] = {}
    for branch, calls in conditionals(priced.program.schedule):
        name = branch.place or branch.name
        short, long = (calls * seconds for seconds in _span((branch,), priced))
        before = found.get(name, Conditional(name, 0, 0.0, 0.0))
        sums = before.calls + calls, before.shortest + short, before.longest + long
        found[name] = Conditional(name, *sums)
    return tuple(sorted(found.values(), key=lambda part: -np.max(part.longest - part.shortest)))


def _span(block: Block, priced: Priced) -> Span:
    """Seconds of the operations of a block, one after the other."""
    spans = [_span_of(step, priced) for step in block]
    return sum((short for short, _ in spans), 0.0), sum((long for _, long in spans), 0.0)


def _span_of(step: Operation, priced: Priced) -> Span:
    if isinstance(step, Branch):
        spans = [_span(inner, priced) for inner in step.branches]
        return reduce(sooner, (s for s, _ in spans)), reduce(later, (s for _, s in spans))
    if isinstance(step, Loop):
        short, long = _span(step.body, priced)
        return step.trips * short, step.trips * long
    if isinstance(step, Wait):
        return 0.0, 0.0
    cost = priced.kernels.get(step.name) or priced.collectives[step.name]
    return cost.time, cost.time
