"""Start and end of every operation: the schedule run on a compute and two communication streams.

    compute  |matmul|matmul|......wait|matmul|        ....: exposed communication
    comm          |all-gather[fsdp]---|                     |---|: hidden where compute is busy
    permute            |permute[stage]|                     counts once where both communicate

A kernel starts when the compute stream is free. An asynchronous collective is issued there too, but
starts when its own stream is free: permutes have one, all others another, and on each one runs at a
time, in the order of issue, as XLA's GPU runtime has it (openxla/xla, AsyncStreamKind, P2P and
COLLECTIVE). While both want the same links for more than all of the time, say 1.7 times, both take
1.7 times as long: no link carries more than it can (`scaling.collectives.shared_links`).

A Wait holds the compute stream until its collective is over; a synchronous collective holds both.
What takes no time, such as what a configuration does not run, is not issued and waits for no
stream. The longest of several branches runs. Asynchronous kernels (copies) get a stream of their
own; waiting for them counts as `host`, because they copy to and from the host.

Beside a collective a kernel goes on more slowly, and a collective beside a kernel: 1 + `slowdown`
and 1 + `held_up` times as long for the same work.

The host issues kernels and collectives in order, `issue` seconds each, from the start of the step,
and runs ahead: an operation starts when the device is free and it has been issued. Seconds in which
the compute stream waits for that are `host`, also where communication runs beside.

Hidden communication is the union of the intervals of both streams, less the exposed part.

Compute in the bubble trips of a loop (`simulate.pipeline_bubble`) is the bubble of a pipeline.

Every instant of the step is compute, bubble, optimizer, exposed communication or host, so these sum
to the step time. Times and the trip counts of loops may be numpy arrays over configurations.

Only differences between the clocks decide what happens next. So iterations of a loop that follow
one which moved all clocks alike are counted, not run; that of a host which stays ahead may differ.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from typing import Any, Literal, get_args

import numpy as np

from scaling.meshes.errors import InputError
from scaling.program.ir import (
    Block,
    Branch,
    Collective,
    Kernel,
    Loop,
    Number,
    Operation,
    Program,
    Wait,
    as_float,
)  # fmt: skip
from scaling.simulate.prediction import TimeParts

Stream = Literal["compute", "communication", "permute", "copy"]
Part = Literal[
    "compute", "bubble", "optimizer", "exposed", "copied", "communication", "host", "time"
]  # copied: the part of host that waits for asynchronous copies
Clock = Stream | Literal["issued"] | tuple[Literal["start", "end"], str]
Key = tuple[Part, str]  # what is summed, and the operation where it is kept by name
BUSY: tuple[Part, Part] = ("compute", "host")  # what is bubble in the trips of a loop without work
MOST_EVENTS = 500_000  # that are kept, chosen by this project: ten seconds' work, a trace of 100 MB
MOST_RUN = 1_000_000  # operations that are run one by one, chosen by this project: half a minute
ROUNDING = 1e-12  # of sums of float64, relative: far above their 2e-16, far below any time


@dataclass(frozen=True)
class Event:
    """One operation on its stream. Seconds from the start of the training step."""

    operation: Operation
    stream: Stream
    start: float
    end: float


@dataclass(frozen=True)
class Timeline(TimeParts):
    """Seconds of a step by part, and by operation."""

    by_name: Mapping[str, Number]  # name -> seconds of all its calls
    exposed_by_name: Mapping[str, Number]  # name -> seconds that the compute stream stood still
    events: tuple[Event, ...] = ()  # if recorded

    @property
    def total(self) -> Number:
        """Seconds of the whole step."""
        busy = self.compute + self.optimizer + self.exposed_communication
        return busy + self.bubble + self.host


def run_schedule(
    program: Program,
    times: Mapping[str, Number],
    host: Number = 0.0,
    record: bool = False,
    named: bool = True,
    slowdown: float = 0.0,
    shortest: bool = False,
    busy: Mapping[str, np.ndarray | None] | None = None,
    held_up: float = 0.0,
) -> Timeline:
    """Run the schedule of a program and sum its time by part.

    Args:
        times: seconds of one call of every kernel and collective, by name.
        host: seconds per step during which the device waits for the host.
        record: keep every event, of every iteration of every loop (for a trace), until there are
            MOST_EVENTS; the times are then numbers.
        named: also sum by the name of the operation, which takes longer.
        slowdown: time that a kernel takes beside a collective over that alone, less one.
        shortest: of every conditional the shortest branch runs, not the longest.
        busy: share of its time that each pool of links is busy with a collective, by name: float
            [pools] or [pools, configurations]. One of None wants the links of all others, all of
            its time; None for all: none share links.
        held_up: time that a collective takes beside a kernel over that alone, less one.
    """
    alone = {name: as_float(seconds) for name, seconds in times.items()}
    streams = Streams(alone, record, named, slowdown, shortest, busy, held_up)
    streams.block(program.schedule)
    exposed = streams.named("exposed")
    waited = sum(exposed.values(), 0.0)
    return Timeline(
        compute=streams.sum("compute"),
        optimizer=streams.sum("optimizer"),
        exposed_communication=waited,
        bubble=streams.sum("bubble"),
        host=as_float(host) + streams.sum("host"),
        hidden_communication=later(0.0, streams.sum("communication") - waited),
        by_name=streams.named("time"),
        exposed_by_name=exposed | streams.named("copied"),
        events=tuple(streams.events),
    )


class Streams:
    """Clocks, operations in flight, and the sums so far.

    A clock says when a stream is free, "issued" when the host is done with all operations so far,
    ("start", name) and ("end", name) when an operation in flight begins and is over.
    """

    def __init__(
        self,
        times: Mapping[str, Number],
        record: bool,
        by_name: bool,
        slowdown: float = 0.0,
        shortest: bool = False,
        busy: Mapping[str, np.ndarray | None] | None = None,
        held_up: float = 0.0,
    ):
        self.busy, self.held_up = busy, held_up
        self.times = times
        self.shortest = shortest
        self.slowdown = slowdown
        self.record = record
        self.by_name = by_name
        self.clocks: dict[Clock, Number] = dict.fromkeys((*get_args(Stream), "issued"), 0.0)
        self.ahead: Number = np.inf  # s, the least by which the host was ahead of an operation
        self.in_flight: dict[Stream, dict[str, Operation]] = {s: {} for s in get_args(Stream)}
        self.sums: dict[Key, Number] = {}
        self.events: list[Event] = []
        self.run = count()  # one for all copies

    @property
    def recording(self) -> bool:
        """True if the next event is to be kept."""
        return self.record and len(self.events) < MOST_EVENTS

    def sum(self, part: Part) -> Number:
        """Seconds of one part of the step."""
        return self.sums.get((part, ""), 0.0)

    def named(self, part: Part) -> dict[str, Number]:
        """Seconds by the name of the operation."""
        return {name: n for (kept, name), n in self.sums.items() if kept == part}

    def block(self, block: Block) -> None:
        """Run operations one after the other, each by the method that is named after its class."""
        for operation in block:
            if next(self.run) == MOST_RUN:
                raise InputError(
                    f"{operation.name}: more than {MOST_RUN:,} operations would be run one by one: "
                    "of the loops around them no iteration takes as long as the one before"
                )
            getattr(self, type(operation).__name__.lower())(operation)

    def kernel(self, kernel: Kernel) -> None:
        """Run a kernel on the compute stream, or issue an asynchronous one."""
        self._wait_for_host(kernel)
        if kernel.asynchronous:
            self._issue(kernel, "copy")
            return
        part: Part = "optimizer" if kernel.origin.phase == "optimizer" else "compute"
        start = self.clocks["compute"]
        seconds = self._run(kernel, "compute", start, self._lost(kernel))
        self._add((part, ""), seconds)
        if self.held_up:
            self._hold_up(start, seconds)

    def collective(self, collective: Collective) -> None:
        """Issue a collective, and wait for a synchronous one at once.

        Its time beside collectives of the other stream, which are still in flight then, is theirs.
        """
        self._wait_for_host(collective)
        other: Stream = "communication" if collective.kind == "permute" else "permute"
        others = list(self.in_flight[other])
        seconds = self._issue(collective, _stream(collective))
        if self.busy is not None and others:
            seconds = seconds + self._share_links(collective, other, others)
        for name in others:
            seconds = seconds - self._together(name, collective.name)
        self._add(("communication", ""), seconds)
        if not collective.asynchronous:
            self.wait(collective)

    def wait(self, named: Wait | Collective) -> None:
        """Hold the compute stream until the operation of that name is over."""
        name, now = named.name, self.clocks["compute"]
        del self.clocks["start", name]
        self.clocks["compute"] = later(now, self.clocks.pop(("end", name)))
        stream = next(stream for stream, flying in self.in_flight.items() if name in flying)
        del self.in_flight[stream][name]
        if stream == "copy":
            self._add(("host", ""), self.clocks["compute"] - now)
        part: Part = "copied" if stream == "copy" else "exposed"
        self._add((part, name * self.by_name), self.clocks["compute"] - now)

    def loop(self, loop: Loop) -> None:
        """Run iterations until every clock that moves moves alike, then count the rest.

        A configuration that is done stands still in the iterations of the others. Compute, and
        waiting for the host, in the bubble trips of the loop is bubble.
        """
        left, starts = np.trunc(loop.trips)[()], [self.sum(part) for part in BUSY]
        while np.any(left > 0):
            before, outer, least = self.clocks.copy(), self.sums, self.ahead
            self.sums, self.ahead = {}, np.inf
            self.block(loop.body)
            iteration, self.sums = self.sums, outer
            active = left > 0
            moved = {c: now - before.get(c, now) for c, now in self.clocks.items()}
            late = moved["issued"] - moved["compute"]  # s by which the host falls back
            times = 1 if self.recording else sooner(left, self._alike(before, late))
            for key, seconds in iteration.items():
                self._add(key, where(active, times * seconds, 0.0))
            for clock, now in self.clocks.items():
                shift = moved["issued" if clock == "issued" else "compute"] * (times - 1)
                self.clocks[clock] = where(
                    active, now + (moved[clock] != 0) * shift, before.get(clock, now)
                )
            self.ahead = self.ahead - (times - 1) * later(0.0, late)
            self.ahead = sooner(least, where(active, self.ahead, np.inf))
            left = left - times
        if np.any(loop.bubble_trips):
            share = loop.bubble_trips / later(1, loop.trips)
            for part, start in zip(BUSY, starts, strict=True):
                bubble = (self.sum(part) - start) * share
                self._add((part, ""), -bubble)
                self._add(("bubble", ""), bubble)

    def branch(self, branch: Branch) -> None:
        """Run the block that holds the compute stream longest, in each configuration its own.

        A block waits for all that it issues, so no other block would end later (or, of the
        shortest, earlier).
        """
        after = [self._copy() for _ in branch.branches]
        for streams, block in zip(after, branch.branches, strict=True):
            streams.block(block)
        ends = [streams.clocks["compute"] for streams in after]
        chosen: Any = reduce(sooner if self.shortest else later, ends)
        level = [abs(end - chosen) <= chosen * ROUNDING for end in ends]  # the first of equal ones
        if not isinstance(chosen, np.ndarray):
            vars(self).update(vars(after[level.index(True)]))
            return
        index = np.argmax(np.stack(np.broadcast_arrays(*level)), axis=0)
        self.clocks = _selected([streams.clocks for streams in after], index)
        self.ahead = reduce(sooner, [streams.ahead for streams in after])
        self.sums = _selected([streams.sums for streams in after], index)

    def _wait_for_host(self, operation: Kernel | Collective) -> None:
        """Hold the compute stream until the host has issued an operation that takes time."""
        if not operation.issue:
            return
        now, nothing = self.clocks["compute"], np.equal(self.times[operation.name], 0.0)
        issued = self.clocks["issued"] + where(nothing, 0.0, operation.issue)
        self.clocks["issued"], self.clocks["compute"] = issued, later(now, issued)
        self.ahead = sooner(self.ahead, now - issued)
        self._add(("host", ""), self.clocks["compute"] - now)

    def _issue(self, operation: Operation, stream: Stream) -> Number:
        now, free = self.clocks["compute"], self.clocks[stream]
        nothing = np.equal(self.times[operation.name], 0.0)  # to do: it does not queue
        start = where(nothing, now, later(now, free))
        seconds = self._run(operation, stream, start)
        self.clocks[stream] = where(nothing, free, start + seconds)
        self.in_flight[stream][operation.name] = operation
        self.clocks["start", operation.name] = start
        self.clocks["end", operation.name] = start + seconds
        return seconds

    def _lost(self, kernel: Kernel) -> Number:
        """Seconds by which the collectives beside a kernel hold it up.

        What was issued before it runs without a gap until the clocks of its streams.
        """
        if not self.slowdown:
            return 0.0
        until = later(self.clocks["communication"], self.clocks["permute"])
        beside = later(0.0, until - self.clocks["compute"]) * (1 + self.held_up)
        return self.slowdown * sooner(self.times[kernel.name], beside / (1 + self.slowdown))

    def _hold_up(self, start: Number, seconds: Number) -> None:
        """Lengthen the collectives beside a kernel of so many seconds."""
        most = seconds * self.held_up / (1 + self.held_up)
        late = lambda end: sooner(most, self.held_up * later(0.0, end - start))
        streams: tuple[Stream, Stream] = ("communication", "permute")
        until = later(*(self.clocks[stream] for stream in streams))
        self._add(("communication", ""), late(until))
        for stream in streams:
            for name in self.in_flight[stream]:
                self._move(name, *(late(self.clocks[at, name]) for at in ("start", "end")))
            self.clocks[stream] = self.clocks[stream] + late(self.clocks[stream])

    def _share_links(self, one: Collective, stream: Stream, others: Sequence[str]) -> Number:
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
        for each in (stream, _stream(one)):
            self.clocks[each] = self.clocks[each] + late
        return 2 * late

    def _move(self, name: str, begin: Number, end: Number) -> None:
        """Let an operation in flight begin and end so many seconds later."""
        self.clocks["start", name] = self.clocks["start", name] + begin
        self.clocks["end", name] = self.clocks["end", name] + end
        if self.by_name:
            self._add(("time", name), end - begin)
        for i in range(len(self.events) - 1, -1, -1):
            event = self.events[i]
            if event.operation.name == name:
                moved = float(event.start + begin), float(event.end + end)
                self.events[i] = replace(event, start=moved[0], end=moved[1])
                return

    def _wanted(self, first: str, second: str) -> Number:
        """Times that the links wanted most by two collectives are wanted at once, at least 1."""
        assert self.busy is not None
        one, other = self.busy[first], self.busy[second]
        if one is None or other is None:
            return 2.0
        wanted = one.reshape(len(one), -1) + other.reshape(len(other), -1)
        most = np.max(wanted, axis=0, initial=1.0)
        return most if most.size > 1 else float(most[0])

    def _together(self, first: str, second: str) -> Number:
        """Seconds during which two operations in flight both run."""
        start = later(self.clocks["start", first], self.clocks["start", second])
        return later(0.0, sooner(self.clocks["end", first], self.clocks["end", second]) - start)

    def _run(
        self, operation: Operation, stream: Stream, start: Number, lost: Number = 0.0
    ) -> Number:
        seconds = self.times[operation.name] + lost
        self.clocks[stream] = start + seconds
        if self.by_name:
            self._add(("time", operation.name), seconds)
        if self.recording:
            self.events.append(Event(operation, stream, float(start), float(start + seconds)))
        return seconds

    def _add(self, key: Key, seconds: Number) -> None:
        self.sums[key] = self.sums.get(key, 0.0) + seconds

    def _copy(self) -> "Streams":
        other = copy(self)
        for name in ("clocks", "sums", "events"):
            setattr(other, name, getattr(self, name).copy())
        other.in_flight = {stream: flying.copy() for stream, flying in self.in_flight.items()}
        return other

    def _alike(self, before: Mapping[Clock, Number], late: Number) -> Number:
        """Number of iterations, with the one that has just run, that are alike; 1: not known.

        All clocks that moved have moved alike. One that stood still is left alone if it lies in the
        past: nothing waits for it. So is the host, while it is ahead; it falls back by `late`.
        """
        after, start = self.clocks, before["compute"]
        if after.keys() != before.keys():
            return 1
        period, off = after["compute"] - start, as_float(0.0)
        for clock, n in after.items():
            if clock != "issued":
                moved, ahead = n - before[clock], later(0.0, n - start)
                off = later(off, np.minimum(np.abs(moved - period), np.abs(moved) + ahead))
        least = ROUNDING * after["compute"]
        is_ahead, keeps_up = self.ahead >= -least, late <= least
        more = np.where(keeps_up, np.inf, np.floor(self.ahead / np.where(keeps_up, 1.0, late)))
        more = np.where(is_ahead, more, np.where(np.abs(late) <= least, np.inf, 0.0))
        return 1 + np.where(off <= least, more, 0.0)[()]


def _selected(choices: Sequence[Mapping[Any, Number]], index: np.ndarray) -> dict[Any, Number]:
    """The figures of the selected choice in each configuration; missing ones are 0."""
    keys = dict.fromkeys(key for choice in choices for key in choice)
    pick = lambda key: [np.where(index == i, c.get(key, 0.0), 0.0) for i, c in enumerate(choices)]
    return {key: sum(pick(key), 0.0) for key in keys}


def _stream(collective: Collective) -> Stream:
    return "permute" if collective.kind == "permute" else "communication"


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
