"""The bubble of a pipeline in its compiled program, and what each stage does meanwhile.

All stages compute in every tick, those without work on data that is never read, so the program
shows no waiting. What is computed in the scopes `FILL` and `DRAIN` is bubble: S - 1 ticks forward
and as many backward (`models.pipeline.schedule`).

Stage s of S has, with ticks counted from 0 in each loop, in those of both ways over all of them,

    fill (S - 1 ticks)    a forward pass if t >= s
    steady (T ticks)      a forward pass if t < T - (S - 1 - s), a backward one if t >= S - 1 - s
    drain (S - 1 ticks)   a backward pass if t < S - 1 - s

and in other ticks, of one way between virtual stages, a pass in each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from typing import Literal

from scaling.models.pipeline.schedule import DRAIN, FILL
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
    walk,
)
from scaling.simulate.side_by_side import Stream
from scaling.simulate.step import Priced

STAGE = "stage"  # the mesh axis


def mark_bubbles(program: Program) -> Program:
    """The program with `Loop.bubble_trips` set in its loops that fill and drain a pipeline.

    Kernels that the compiler has left alone of a loop over one tick get one for each.
    """
    if program.mesh.get(STAGE, 1) == 1:
        return program
    return replace(program, schedule=_marked(program.schedule))


def bubble_shares(program: Program) -> dict[str, Number]:
    """Share of the runs that is bubble, by name, of operations in loops with bubble trips."""
    loops = (step for step, _ in walk(program.schedule) if isinstance(step, Loop))
    return {
        step.name: loop.bubble_trips / loop.trips
        for loop in loops
        if loop.bubble_trips
        for step, _ in operations(loop.body)
    }


def _marked(block: Block) -> Block:
    marked: list[Operation] = []
    for step in block:
        if isinstance(step, Branch):
            step = replace(step, branches=tuple(map(_marked, step.branches)))
        elif _scope(step):
            if isinstance(step, Loop):
                step = replace(step, bubble_trips=step.trips)
            elif isinstance(step, Kernel) and not step.asynchronous:
                # a loop over one tick; its buffers stay those of the schedule around it
                buffers = step.reads, step.writes, step.over
                step = Loop(step.name, step.origin, *buffers, body=(step,), trips=1, bubble_trips=1)
        elif isinstance(step, Loop):
            step = replace(step, body=_marked(step.body))
        marked.append(step)
    return tuple(marked)


def _scope(step: Operation) -> str:
    """FILL or DRAIN where a step was computed in that scope, perhaps of a frozen model; else ""."""
    return next((s for s in step.origin.layer.split("/")[:2] if s in (FILL, DRAIN)), "")


# Stage by stage

Ticks = Literal["", "fill", "steady", "drain"]


@dataclass(frozen=True)
class Tick:
    """One iteration of a loop over ticks; kind "": outside of these kinds."""

    kind: Ticks = ""
    number: int = 0
    of: int = 1

    def is_busy(self, stage: int, stages: int, phase: str) -> bool:
        """True if a stage has work of this phase in the tick."""
        later = stages - 1 - stage  # stages behind this one
        backward = phase in ("backward", "remat")
        t = self.number
        if self.kind == "fill":
            return t >= stage
        if self.kind == "drain":
            return t < later
        if self.kind == "steady" and phase:
            return t >= later if backward else t < self.of - later
        return True


@dataclass(frozen=True)
class StageSpan:
    """What a stage does on one stream for some time. Seconds from the start of the step."""

    stream: Stream
    what: str  # phase of a kernel, kind of a collective, or "bubble"; "": not known
    start: float
    end: float


def stage_spans(priced: Priced) -> list[list[StageSpan]]:
    """What each stage does, in order of time; `priced` has its timeline recorded.

    What touches on a stream and is of one kind is one span.
    """
    events = priced.timeline.events
    ticks = _ticks_of(priced.program.schedule)
    placed = [(event, next(ticks.get(event.operation.name, repeat(Tick())))) for event in events]
    stages = int(priced.program.mesh.get(STAGE, 1))
    of_stages = []
    for stage in range(stages):
        spans: dict[Stream, list[StageSpan]] = {}
        for event, tick in placed:
            what: str = event.operation.origin.phase
            if isinstance(event.operation, Collective):
                what = event.operation.kind
            elif event.stream == "compute" and not tick.is_busy(stage, stages, what):
                what = "bubble"
            _append(spans.setdefault(event.stream, []), event.stream, what, event.start, event.end)
        of_stages.append([span for row in spans.values() for span in row])
    return of_stages


def _append(row: list[StageSpan], stream: Stream, what: str, start: float, end: float) -> None:
    """Add a span to a row, or lengthen the last one."""
    if end <= start:
        return
    if row and row[-1].what == what and row[-1].end >= start:
        row[-1] = StageSpan(stream, what, row[-1].start, end)
    else:
        row.append(StageSpan(stream, what, start, end))


def _ticks_of(schedule: Block) -> dict[str, Iterator[Tick]]:
    """The ticks of an operation's calls, in the order in which they run, by its name."""
    loops = ((step, n) for step, n in walk(schedule) if isinstance(step, Loop))
    steady = int(sum(loop.trips * n for loop, n in loops if _kind(loop) == "steady"))
    parts: dict[str, list[Iterator[Tick]]] = {}
    for name, tick, calls in _calls(schedule, (Tick("steady", t, steady) for t in count())):
        parts.setdefault(name, []).append(repeat(tick, calls))
    return {name: chain(*ticks, repeat(Tick())) for name, ticks in parts.items()}


def _calls(
    block: Block, steady: Iterator[Tick], tick: Tick = Tick(), times: int = 1
) -> Iterator[tuple[str, Tick, int]]:
    """(name, tick, calls in it) of every operation, ticks in order; `steady` are those to come."""
    for step in block:
        if not isinstance(step, Loop):
            yield step.name, tick, times
            for body in bodies(step):
                yield from _calls(body, steady, tick, times)
        elif kind := _kind(step):
            for number in range(int(step.trips)):
                own = next(steady) if kind == "steady" else Tick(kind, number, int(step.trips))
                yield from _calls(step.body, steady, own)
        elif any(isinstance(inner, Loop) and _kind(inner) for inner, _ in walk(step.body)):
            for _ in range(int(step.trips)):  # over laps
                yield from _calls(step.body, steady)
        else:
            yield from _calls(step.body, steady, tick, times * int(step.trips))


def _kind(loop: Loop) -> Ticks:
    """What a loop over ticks runs; "": it is over none, or of one way between virtual stages."""
    if loop.bubble_trips:
        scopes = (loop.name.split()[-1], _scope(loop))
        return "drain" if DRAIN in scopes else "fill" if FILL in scopes else ""
    phases = {step.origin.phase for step, _ in operations(loop.body)}
    # The collectives of a loop over the stages alone.
    handed_on = [s for s in loop.body if isinstance(s, Collective) and s.axes == (STAGE,)]
    return "steady" if handed_on and {"forward", "backward"} <= phases else ""
