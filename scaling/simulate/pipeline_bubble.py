"""The bubble of a pipeline in its compiled program.

All stages compute in every tick, those without work on data that is never read, so the program
shows no waiting. S - 1 ticks of each stage are bubble (`models.pipeline.schedule`):

    gpipe, circular   that share of the time in the loops over ticks, forward and backward: loops
                      that permute to the next stage. One that the compiler has unrolled or split is
                      not recognised: all its time stays compute
    1f1b              all that is computed in the scopes `FILL` and `DRAIN`, S - 1 ticks forward and
                      as many backward
"""

from collections.abc import Iterator
from dataclasses import replace

from scaling.models.pipeline.schedule import DRAIN, FILL, PipelineSchedule
from scaling.program.ir import (
    Block,
    Branch,
    Collective,
    Kernel,
    Loop,
    Number,
    Operation,
    Program,
    bodies,
    operations,
)

STAGE = "stage"  # the mesh axis


def mark_bubbles(program: Program, pipeline: PipelineSchedule) -> Program:
    """The program with `Loop.bubble_trips` set in its loops over ticks.

    Kernels that the compiler has left alone of a loop over one tick get one for each.
    """
    if pipeline.stages == 1:
        return program
    return replace(program, schedule=_marked(program.schedule, pipeline))


def bubble_shares(program: Program) -> dict[str, Number]:
    """Share of the runs that is bubble, by name, of operations in loops with bubble trips."""
    return dict(_shares(program.schedule))


def _marked(block: Block, pipeline: PipelineSchedule) -> Block:
    found: list[Operation] = []
    for step in block:
        if isinstance(step, Branch):
            step = replace(step, branches=tuple(_marked(b, pipeline) for b in step.branches))
        elif step.origin.layer.split("/")[0] in (FILL, DRAIN):
            if isinstance(step, Loop):
                step = replace(step, bubble_trips=step.trips)
            elif isinstance(step, Kernel) and not step.asynchronous:
                # a loop over one tick; its buffers stay those of the schedule around it
                buffers = step.reads, step.writes, step.over
                step = Loop(step.name, step.origin, *buffers, body=(step,), trips=1, bubble_trips=1)
        elif isinstance(step, Loop) and _is_over_ticks(step, pipeline):
            step = replace(step, bubble_trips=pipeline.stages - 1)
        elif isinstance(step, Loop):
            step = replace(step, body=_marked(step.body, pipeline))
        found.append(step)
    return tuple(found)


def _is_over_ticks(loop: Loop, pipeline: PipelineSchedule) -> bool:
    """Return True for a loop of as many trips that permutes to the next stage."""
    return loop.trips == pipeline.iterations and any(
        isinstance(step, Collective) and step.kind == "permute" and step.axes == (STAGE,)
        for step in loop.body
    )


def _shares(block: Block) -> Iterator[tuple[str, Number]]:
    for step in block:
        if isinstance(step, Loop) and step.bubble_trips:
            share = step.bubble_trips / step.trips
            yield from ((inside.name, share) for inside, _ in operations(step.body))
        else:
            for body in bodies(step):
                yield from _shares(body)
