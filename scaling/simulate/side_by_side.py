"""Clocks of the streams, operations in flight, and what these cost each other side by side.

    kernel beside a collective     1 - `lost` of its rate; beside two, the lower rate
    collective beside a kernel     1 + `held_up` times as long
    two collectives at once        as many times as long as they want the same links for more than
                                   all of the time: 1.7 times if wanted 1.7 times

Times may be numpy arrays over configurations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from typing import Literal, get_args

import numpy as np

from scaling.program.ir import Collective, Kernel, Number, Operation, as_float, some

Stream = Literal["compute", "communication", "permute", "weights", "experts", "copy"]
Part = Literal[
    "compute", "bubble", "optimizer", "exposed", "copied", "communication", "host", "time"
]  # copied: the part of host that waits for asynchronous copies
Clock = Stream | Literal["issued"] | tuple[Literal["start", "end"], str]
Key = tuple[Part, str]  # what is summed, and the operation where it is kept by name
STREAMS: tuple[Stream, ...] = get_args(Stream)
COMMUNICATION: tuple[Stream, ...] = "communication", "permute", "weights", "experts"
CLOCKS: tuple[Clock, ...] = (*STREAMS, "issued")
MOST_EVENTS = 500_000  # that are kept, chosen by this project: ten seconds' work, a trace of 100 MB


@dataclass(frozen=True)
class Event:
    """One operation on its stream. Seconds from the start of the training step."""

    operation: Operation
    stream: Stream
    start: float
    end: float


@dataclass
class Clocks:
    """Clocks, operations in flight, and the sums so far.

    A clock says when a stream is free, "issued" when the host is done with all operations so far,
    ("start", name) and ("end", name) when an operation in flight begins and is over.
    """

    times: Mapping[str, Number]  # the rest as `scaling.simulate.timeline.run_schedule` has it
    record: bool = False
    named: bool = True
    lost: Mapping[str, Number] = field(default_factory=dict)
    busy: Mapping[str, np.ndarray | None] | None = None
    held_up: Number = 0.0
    clocks: dict[Clock, Number] = field(default_factory=lambda: dict.fromkeys(CLOCKS, 0.0))
    ahead: Number = np.inf  # s, the least by which the host was ahead of an operation
    in_flight: dict[Stream, dict[str, Operation]] = field(
        default_factory=lambda: {stream: {} for stream in STREAMS}
    )
    sums: dict[Key, Number] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    wanted: dict[tuple[str, str], Number] = field(default_factory=dict)  # see `_wanted`

    @property
    def recording(self) -> bool:
        """True if the next event is to be kept."""
        return self.record and len(self.events) < MOST_EVENTS

    def sum(self, part: Part) -> Number:
        """Seconds of one part of the step."""
        return self.sums.get((part, ""), 0.0)

    def by_name(self, part: Part) -> dict[str, Number]:
        """Seconds by the name of the operation."""
        return {name: n for (kept, name), n in self.sums.items() if kept == part}

    def issue(self, operation: Operation, stream: Stream) -> Number:
        """Begin an operation when its stream is free; seconds that it takes."""
        now, free = self.clocks["compute"], self.clocks[stream]
        nothing = np.equal(self.times[operation.name], 0.0)  # to do: it does not queue
        start = where(nothing, now, later(now, free))
        seconds = self.run_on(operation, stream, start)
        self.clocks[stream] = where(nothing, free, start + seconds)
        self.in_flight[stream][operation.name] = operation
        self.clocks["start", operation.name] = start
        self.clocks["end", operation.name] = start + seconds
        return seconds

    def lost_beside(self, kernel: Kernel) -> Number:
        """Seconds by which the collectives in flight hold up a kernel that starts now.

        Beside several at once it loses what it loses beside the one that takes most of it. Those of
        one stream follow each other without a gap, as all were issued before now.
        """
        left = self.times[kernel.name]
        lost: Number = 0.0
        reached: Number = 0.0
        flying = [spans for stream in COMMUNICATION if (spans := [*self._spans(stream)])]
        after = ((np.inf, 0.0),) * (len(flying) > 1)
        for each in product(*((*spans, *after) for spans in flying)):
            ends, shares = zip(*each, strict=True) if each else ((0.0,), (0.0,))
            until, most = reduce(sooner, ends), reduce(later, shares)
            if not some(length := later(0.0, until - reached)):
                continue
            done = sooner(left, length * (1 - most))
            lost, left = lost + done * most / (1 - most), left - done
            reached = later(reached, until)
            if not some(left):
                return lost
        return lost

    def _spans(self, stream: Stream) -> Iterator[tuple[Number, Number]]:
        """End, from now, of each collective in flight, and what kernels lose beside it."""
        now, longer = self.clocks["compute"], 1 + self.held_up
        for name in self.in_flight[stream] if self.lost else ():
            if some(end := later(0.0, self.clocks["end", name] - now) * longer):
                yield end, self.lost.get(name, 0.0)

    def hold_up(self, start: Number, seconds: Number) -> None:
        """Lengthen the collectives beside a kernel of so many seconds."""
        most = seconds * self.held_up / (1 + self.held_up)
        late = lambda end: sooner(most, self.held_up * later(0.0, end - start))
        until = reduce(later, (self.clocks[stream] for stream in COMMUNICATION))
        self.add(("communication", ""), late(until))
        for stream in COMMUNICATION:
            for name in self.in_flight[stream]:
                self._move(name, *(late(self.clocks[at, name]) for at in ("start", "end")))
            self.clocks[stream] = self.clocks[stream] + late(self.clocks[stream])

    def share_links(self, one: Collective, stream: Stream, others: Sequence[str]) -> Number:
        """Lengthen a collective, and those in flight on the other stream, by what their links lack.

        Returns the seconds by which both streams together take longer. The others run one after the
        other without a gap: all were issued before now.
        """
        start, left, late = self.clocks["start", one.name], self.times[one.name], as_float(0.0)
        for name in others:
            begin, end = self.clocks["start", name], self.clocks["end", name]
            beside = sooner(left, later(0.0, end - later(begin, start)))  # s, of either alone
            after = late + (self._wanted(one.name, name) - 1) * beside
            begin = where(np.greater(begin, start), late, 0.0)
            self._move(name, begin, where(np.greater(end, start), after, 0.0))
            left, late = left - beside, after
        self._move(one.name, 0.0, late)
        for each in (stream, stream_of(one)):
            self.clocks[each] = self.clocks[each] + late
        return 2 * late

    def _move(self, name: str, begin: Number, end: Number) -> None:
        """Let an operation in flight begin and end so many seconds later."""
        self.clocks["start", name] = self.clocks["start", name] + begin
        self.clocks["end", name] = self.clocks["end", name] + end
        if self.named:
            self.add(("time", name), end - begin)
        for i in range(len(self.events) - 1, -1, -1):
            event = self.events[i]
            if event.operation.name == name:
                moved = float(event.start + begin), float(event.end + end)
                self.events[i] = replace(event, start=moved[0], end=moved[1])
                return

    def _wanted(self, first: str, second: str) -> Number:
        """Times that the links wanted most by two collectives are wanted at once, at least 1."""
        assert self.busy is not None
        if (first, second) not in self.wanted:
            one, other = self.busy[first], self.busy[second]
            self.wanted[first, second] = 2.0
            if one is not None and other is not None:
                both = one.reshape(len(one), -1) + other.reshape(len(other), -1)
                most = np.max(both, axis=0, initial=1.0)
                self.wanted[first, second] = most if most.size > 1 else float(most[0])
        return self.wanted[first, second]

    def together(self, *names: str) -> Number:
        """Seconds during which operations in flight all run."""
        start = reduce(later, (self.clocks["start", name] for name in names))
        return later(0.0, reduce(sooner, (self.clocks["end", name] for name in names)) - start)

    def run_on(
        self, operation: Operation, stream: Stream, start: Number, lost: Number = 0.0
    ) -> Number:
        """Run an operation on a stream from its start on; seconds that it takes."""
        seconds = self.times[operation.name] + lost
        self.clocks[stream] = start + seconds
        if self.named:
            self.add(("time", operation.name), seconds)
        if self.recording:
            self.events.append(Event(operation, stream, float(start), float(start + seconds)))
        return seconds

    def add(self, key: Key, seconds: Number) -> None:
        """Add to a sum."""
        self.sums[key] = self.sums.get(key, 0.0) + seconds


def stream_of(collective: Collective) -> Stream:
    """The stream of a collective."""
    if collective.kind == "permute":
        return "permute"
    if not collective.apart:
        return "communication"
    return "experts" if collective.kind == "all-to-all" else "weights"


def where(condition: Number, first: Number, second: Number) -> Number:
    """One of two numbers, in each configuration."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, first, second)
    return first if condition else second


def later(first: Number, second: Number) -> Number:
    """The larger one, in each configuration."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def sooner(first: Number, second: Number) -> Number:
    """The smaller one, in each configuration."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)
