"""The streams of one device while a schedule is replayed: when each is free, and the sums of time.

    compute  |matmul|matmul|......wait|matmul|
    comm          |all-gather[fsdp]---|

Only differences of these clocks decide what happens next. So an iteration of a loop that moves all
of them alike is followed by iterations like it, which are counted instead of replayed.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeVar

import numpy as np

from scaling.program.ir import Block, Branch, Collective, Kernel, Loop, Number, Operation, Wait

Stream = Literal["compute", "communication", "copy"]
Part = Literal["compute", "bubble", "optimizer", "exposed", "communication", "copy", "time"]
Key = tuple[Part, str]  # what is summed, and the step's name where it is kept by name
K = TypeVar("K")
ROUNDING = 1e-12  # of sums of float64, relative: far above their 2e-16, far below any time


@dataclass(frozen=True)
class Event:
    """One step on its stream. Seconds from the start of the training step."""

    step: Operation
    stream: Stream
    start: float
    end: float


class Streams:
    """When each stream is free, what is under way, and sums so far."""

    def __init__(self, times: Mapping[str, Number], record: bool):
        self.times = times
        self.record = record
        self.free: dict[Stream, Number] = {"compute": 0.0, "communication": 0.0, "copy": 0.0}
        self.ends: dict[str, Number] = {}  # of asynchronous steps, by name
        self.under_way: dict[str, Operation] = {}
        self.sums: dict[Key, Number] = {}
        self.events: list[Event] = []

    def sum(self, part: Part) -> Number:
        """Seconds of one part of the step."""
        return self.sums.get((part, ""), 0.0)

    def named(self, part: Part) -> dict[str, Number]:
        """Seconds by the name of the step."""
        return {name: n for (kept, name), n in self.sums.items() if kept == part}

    def block(self, block: Block) -> None:
        """Run steps one after the other."""
        for step in block:
            if isinstance(step, Loop):
                self.loop(step)
            elif isinstance(step, Branch):
                self.branch(step)
            elif isinstance(step, Wait):
                self.wait(step.name)
            elif isinstance(step, Kernel):
                self.kernel(step)
            elif isinstance(step, Collective):
                self.collective(step)

    def kernel(self, kernel: Kernel) -> None:
        """On the compute stream, or beside it."""
        if kernel.asynchronous:
            self._issue(kernel, "copy")
            return
        part: Part = "optimizer" if kernel.origin.phase == "optimizer" else "compute"
        self._add((part, ""), self._run(kernel, "compute", self.free["compute"]))

    def collective(self, collective: Collective) -> None:
        """On the communication stream; a synchronous one is waited for at once."""
        self._add(("communication", ""), self._issue(collective, "communication"))
        if not collective.asynchronous:
            self.wait(collective.name)

    def wait(self, name: str) -> None:
        """Hold the compute stream until the step of that name is over."""
        step, now = self.under_way.pop(name), self.free["compute"]
        self.free["compute"] = later(now, self.ends.pop(name))
        part: Key = ("exposed", name) if isinstance(step, Collective) else ("copy", "")
        self._add(part, self.free["compute"] - now)

    def loop(self, loop: Loop) -> None:
        """Replay iterations until every clock that moves moves alike, then count the rest.

        What is computed in idle trips is bubble.
        """
        left, before_all = int(loop.trips), self.sum("compute")
        while left > 0:
            before, outer = self._clocks(), self.sums
            self.sums = {}
            self.block(loop.body)
            one, self.sums = self.sums, outer
            lasts = None if self.record else self._period(before)
            times = 1 if lasts is None else left
            for key, seconds in one.items():
                self._add(key, times * seconds)
            if lasts is not None and left > 1:
                self._shift(before, (left - 1) * lasts)
            left -= times
        if np.any(loop.bubble_trips):
            idle = (self.sum("compute") - before_all) * loop.bubble_trips / loop.trips
            self._add(("compute", ""), -idle)
            self._add(("bubble", ""), idle)

    def branch(self, branch: Branch) -> None:
        """The block that holds the compute stream longest, in each configuration its own.

        What a block issues it also waits for, so nothing of the others would end later.
        """
        after = [self._copy() for _ in branch.branches]
        for clock, block in zip(after, branch.branches, strict=True):
            clock.block(block)
        ends = [clock.free["compute"] for clock in after]
        longest = reduce(later, ends)
        level = [end >= longest * (1 - ROUNDING) for end in ends]  # of equal ones the first
        if not isinstance(longest, np.ndarray):
            vars(self).update(vars(after[level.index(True)]))
            return
        chosen = np.argmax(np.stack(np.broadcast_arrays(*level)), axis=0)
        self.free = _chosen([clock.free for clock in after], chosen)
        self.sums = _chosen([clock.sums for clock in after], chosen)

    def _issue(self, step: Operation, stream: Stream) -> Number:
        seconds = self._run(step, stream, later(self.free["compute"], self.free[stream]))
        self.under_way[step.name], self.ends[step.name] = step, self.free[stream]
        return seconds

    def _run(self, step: Operation, stream: Stream, start: Number) -> Number:
        seconds = self.times[step.name]
        self.free[stream] = start + seconds
        self._add(("time", step.name), seconds)
        if self.record:
            self.events.append(Event(step, stream, float(start), float(start + seconds)))
        return seconds

    def _add(self, key: Key, seconds: Number) -> None:
        self.sums[key] = self.sums.get(key, 0.0) + seconds

    def _copy(self) -> "Streams":
        other = copy(self)
        other.free, other.ends, other.sums = self.free.copy(), self.ends.copy(), self.sums.copy()
        other.under_way, other.events = self.under_way.copy(), self.events.copy()
        return other

    def _clocks(self) -> dict[str, Number]:
        """When streams are free and when what is under way will be over."""
        streams: dict[str, Number] = {f"stream {name}": n for name, n in self.free.items()}
        return streams | self.ends

    def _period(self, before: Mapping[str, Number]) -> Number | None:
        """How far all clocks that moved have moved; None: not alike.

        A clock that stood still is left alone if it lies in the past: nothing waits for it.
        """
        after, start = self._clocks(), before["stream compute"]
        if after.keys() != before.keys():
            return None
        period = after["stream compute"] - start
        off: Number = 0.0
        for name, n in after.items():
            moved, ahead = n - before[name], later(0.0, n - start)
            off = later(off, np.minimum(np.abs(moved - period), np.abs(moved) + ahead))
        return period if np.all(off <= ROUNDING * self.free["compute"]) else None

    def _shift(self, before: Mapping[str, Number], seconds: Number) -> None:
        """Move the clocks that an iteration moved."""
        for stream, n in self.free.items():
            self.free[stream] = n + (n != before[f"stream {stream}"]) * seconds
        for name, n in self.ends.items():
            self.ends[name] = n + (n != before[name]) * seconds


def _chosen(choices: Sequence[Mapping[K, Number]], which: np.ndarray) -> dict[K, Number]:
    """Of each configuration the figures of its own choice; those that are missing are 0."""
    keys = dict.fromkeys(key for choice in choices for key in choice)
    return {
        key: sum((np.where(which == i, c.get(key, 0.0), 0.0) for i, c in enumerate(choices)), 0.0)
        for key in keys
    }


def later(first: Number, second: Number) -> Number:
    """The larger one, in each configuration."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)
