"""Conditionals of a step by the line of code where they stand, and what their branches take.

A program does not say which branch runs. The step, its parts and the high end of its range assume
the longest branch of each; the low end the shortest (`scaling.simulate.uncertainty`).
"""

from functools import reduce

import numpy as np

from scaling.program.ir import Block, Branch, Loop, Number, Operation, Wait, conditionals
from scaling.simulate.prediction import Conditional
from scaling.simulate.side_by_side import later, sooner
from scaling.simulate.step import Priced

Span = tuple[Number, Number]  # s of the shortest and of the longest way through a block


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
