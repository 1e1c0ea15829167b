"""What of a step nobody can price: unknown functions, loops of unknown length, rates not known.

    kernel   counts by its bytes, and by the FLOPs that its shapes tell: it takes as long at least
    loop     counts once
    format   products in it, of which the chip has no rate, take as long as their bytes

None of them has an upper bound, however short it looks: a kernel may loop over what it has read. So
one of them is enough for the step to have none.

Nor does a program say which branch of a conditional runs. Where the caller does not say how often
each does, the step, its parts and the high end of its range assume the longest branch; the low end
the shortest (`simulate.uncertainty`).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from scaling.program.ir import (
    Block,
    Branch,
    Kernel,
    Loop,
    Number,
    Wait,
    conditionals,
    kernels,
    operations,
    some,
    walk,
)
from scaling.simulate.prediction import Conditional, UnknownPart
from scaling.simulate.side_by_side import later, sooner
from scaling.simulate.step import Priced


def unknown_parts(priced: Priced) -> tuple[UnknownPart, ...]:
    """What is not known of the step, the longest first."""
    merged: dict[tuple[str, str], UnknownPart] = {}
    for part in (*_kernels(priced), *_loops(priced)):
        before = merged.get((part.kind, part.name), UnknownPart(part.kind, part.name, 0, 0.0))
        sums = part.calls + before.calls, part.time + before.time
        merged[part.kind, part.name] = UnknownPart(part.kind, part.name, *sums)
    return tuple(sorted(merged.values(), key=lambda part: -float(part.time)))


def _kernels(priced: Priced) -> Iterator[UnknownPart]:
    """Unknown kernels, those of branches that seem the shorter ones too."""
    for kernel, calls in kernels(priced.program):
        cost = priced.kernels[kernel.name]
        if not some(calls):
            continue
        if kernel.unknown:
            yield UnknownPart("kernel", kernel.unknown, calls, calls * cost.time)
        elif cost.unpriced:
            yield UnknownPart("format", cost.unpriced, calls, calls * cost.time)


def _loops(priced: Priced) -> Iterator[UnknownPart]:
    """Loops by where they stand; those of one place may be inside of each other."""
    calls: dict[str, Number] = defaultdict(float)
    kernels_in: dict[str, set[str]] = defaultdict(set)
    for loop, times in walk(priced.program.schedule):
        if isinstance(loop, Loop) and loop.unknown and some(times):
            calls[loop.unknown] += times
            inside = (step for step, _ in operations(loop.body) if isinstance(step, Kernel))
            kernels_in[loop.unknown] |= {kernel.name for kernel in inside}
    for place, names in kernels_in.items():
        time = sum((priced.timeline.by_name.get(name, 0.0) for name in names), 0.0)
        yield UnknownPart("loop", place, calls[place], time)


def conditional_parts(priced: Priced) -> tuple[Conditional, ...]:
    """The conditionals of a step, those of one line as one, the largest difference first."""
    merged: dict[str, Conditional] = {}
    for branch, calls in conditionals(priced.program.schedule):
        name = branch.place or branch.name
        open_ways = replace(branch, shares=())
        short, long = (calls * seconds for seconds in _shortest_longest((open_ways,), priced))
        ways = tuple(calls * _shortest_longest(each, priced)[1] for each in branch.branches)
        before = merged.get(name, Conditional(name, 0, 0.0, 0.0, (0.0,) * len(ways)))
        sums = before.calls + calls, before.shortest + short, before.longest + long
        alike = len(ways) == len(before.branches)
        both = tuple(a + b for a, b in zip(before.branches, ways, strict=False)) if alike else ()
        merged[name] = Conditional(name, *sums, both, branch.shares)
    return tuple(sorted(merged.values(), key=lambda part: -np.max(part.longest - part.shortest)))


def _shortest_longest(block: Block, priced: Priced) -> tuple[Number, Number]:
    """Seconds of the operations of a block, one after the other, by its shortest branches and by
    its longest."""
    short: Number = 0.0
    long: Number = 0.0
    for step in block:
        if isinstance(step, Branch):
            ways = [_shortest_longest(inner, priced) for inner in step.branches]
            times = reduce(sooner, (s for s, _ in ways)), reduce(later, (s for _, s in ways))
            if step.shares:
                mean = [
                    sum(n * t for n, t in zip(step.shares, each, strict=True))
                    for each in zip(*ways, strict=True)
                ]
                times = mean[0], mean[1]
        elif isinstance(step, Loop):
            inner = _shortest_longest(step.body, priced)
            times = step.trips * inner[0], step.trips * inner[1]
        elif not isinstance(step, Wait):
            cost = priced.kernels.get(step.name) or priced.collectives[step.name]
            times = cost.time, cost.time
        else:
            continue
        short, long = short + times[0], long + times[1]
    return short, long
