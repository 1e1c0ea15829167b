"""The bubble of a pipeline in its compiled program.

All stages compute in every tick, those without work on data that is never read, so the program
shows no waiting. S - 1 ticks of each stage are bubble (`models.pipeline.schedule`), and so is that
share of the time in the loops over ticks, forward and backward: loops that permute to the next
stage. A loop that the compiler has unrolled or split is not recognised: all its time stays compute.
"""

from collections.abc import Iterator
from dataclasses import replace

from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.program.ir import (
    Block,
    Branch,
    Collective,
    Loop,
    Number,
    Operation,
    Program,
    bodies,
    operations,
)

STAGE = "stage"  # the mesh axis


def mark_bubbles(program: Program, pipeline: PipelineSchedule) -> Program:
    """The program with `Loop.bubble_trips` set in its loops over ticks."""
    if pipeline.stages == 1:
        return program
    return replace(program, schedule=_marked(program.schedule, pipeline))


def bubble_shares(program: Program) -> dict[str, Number]:
    """Share of the runs that is bubble, by name, of operations in loops with bubble trips."""
    return dict(_shares(program.schedule))


def _marked(block: Block, pipeline: PipelineSchedule) -> Block:
    return tuple(_step(step, pipeline) for step in block)


def _step(step: Operation, pipeline: PipelineSchedule) -> Operation:
    if isinstance(step, Branch):
        return replace(step, branches=tuple(_marked(b, pipeline) for b in step.branches))
    if not isinstance(step, Loop):
        return step
    if step.trips == pipeline.iterations and any(map(_hands_on, step.body)):
        return replace(step, bubble_trips=pipeline.stages - 1)
    return replace(step, body=_marked(step.body, pipeline))


def _hands_on(step: Operation) -> bool:
    return isinstance(step, Collective) and step.kind == "permute" and step.axes == (STAGE,)


def _shares(block: Block) -> Iterator[tuple[str, Number]]:
    for step in block:
        if isinstance(step, Loop) and step.bubble_trips:
            yield from (
                (inside.name, step.bubble_trips / step.trips) for inside, _ in operations(step.body)
            )
        else:
            for body in bodies(step):
                yield from _shares(body)
