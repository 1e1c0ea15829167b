"""Bytes by category in the course of a step: a walk over the schedule with the buffers alive.

    a buffer lives   from the first operation that writes it to the last one that touches it
    persistent ones  all the time: parameters, optimiser state, results
    inside a loop    everything alive around the loop, plus what one iteration needs; what it
                     carries and makes anew needs no memory from the last use until it is made
    over another     a dying buffer gives its place to one of its size that is written over it
                     (over configurations: of its size in all of them)

Exact for a program read from a compiler that follows its own schedule, apart from the gaps that
packing the buffers leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scaling.program.ir import (
    CATEGORIES,
    Block,
    Buffer,
    Category,
    Loop,
    Number,
    Program,
    as_float,
    bodies,
)
from scaling.simulate.side_by_side import Event, where

ON_DEVICE = tuple(category for category in CATEGORIES if category != "pinned_host")


@dataclass(frozen=True)
class MemoryUse:
    """Bytes on one device at the peak, by category; the categories sum to `peak`."""

    peak: Number
    by_category: dict[Category, Number]  # of ON_DEVICE
    pinned_host: Number
    at: str  # name of the operation at the peak
    buffers: tuple[int, ...]  # indices of those alive there; of the last peak over configurations
    during: Mapping[str, tuple[Number, ...]]  # name of an operation -> bytes while it runs, by
    # category in the order of CATEGORIES


def memory_use(program: Program) -> MemoryUse:
    """The memory of a step at its peak."""
    walk = _Walk(program.buffers)
    persistent = {i for i, buffer in enumerate(program.buffers) if buffer.persistent}
    for index in sorted(persistent):
        walk.allocate(index)
    walk.look("arguments")
    walk.block(program.schedule, frozenset(persistent))
    peaks = zip(CATEGORIES, walk.peaks, strict=True)
    kept: dict[Category, Number] = {c: as_float(n) for c, n in peaks if c in ON_DEVICE}
    host = as_float(walk.host_peak)
    there = tuple(sorted(walk.there))
    return MemoryUse(sum(kept.values(), 0.0), kept, host, walk.at, there, walk.during)


def persistent_bytes(program: Program) -> Number:
    """Bytes on one device that are stored from step to step."""
    kept = (b for b in program.buffers if b.persistent and b.category != "pinned_host")
    return sum((buffer.bytes for buffer in kept), 0.0)


def memory_over_time(use: MemoryUse, events: Sequence[Event]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds at which the memory of one configuration changes [n], and the bytes from there on, by
    category of ON_DEVICE [n, 6].

    `events` are those of a recorded timeline; memory changes as the compute stream moves on.
    """
    device = [CATEGORIES.index(category) for category in ON_DEVICE]
    changes: list[tuple[float, tuple[float, ...]]] = []
    for event in events:
        step = event.operation
        if event.stream == "compute" or not getattr(step, "asynchronous", False):
            sizes = tuple(float(use.during[step.name][i]) for i in device)
            if not changes or changes[-1][1] != sizes:
                changes.append((event.start, sizes))
    times, sizes = zip(*changes, strict=True) if changes else ((), ())
    return np.array(times), np.array(sizes).reshape(-1, len(device))


def fullest_moments(
    times: np.ndarray, sizes: np.ndarray, end: float, parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """The fullest moment of each of so many equal parts of a step, so that no peak is lost.

    Args:
        times, sizes: of `memory_over_time`.
        end: s, of the step.
        parts: finer than what is seen of a picture.
    """
    part = np.minimum((times / end * parts).astype(int), parts - 1)
    order = np.lexsort((-sizes.sum(axis=1), part))  # the fullest of a part first
    _, first = np.unique(part[order], return_index=True)
    kept = order[first]
    return part[kept] * end / parts, sizes[kept]


class _Walk:
    """Bytes alive now and at the peak, by category; arrays over configurations broadcast."""

    def __init__(self, buffers: tuple[Buffer, ...]):
        self.buffers = buffers
        self.now: list[Number] = [0.0] * len(CATEGORIES)
        self.peaks: list[Number] = [0.0] * len(CATEGORIES)
        self.most: Number = -1.0
        self.host_peak: Number = 0.0
        self.at = ""
        self.alive: set[int] = set()
        self.there: set[int] = set()  # alive at the peak
        self.during: dict[str, tuple[Number, ...]] = {}
        self.persistent = {i for i, buffer in enumerate(buffers) if buffer.persistent}

    def allocate(self, index: int) -> None:
        self.alive.add(index)
        self._change(index, 1)

    def free(self, index: int) -> None:
        self.alive.remove(index)
        self._change(index, -1)

    def _change(self, index: int, sign: int) -> None:
        buffer = self.buffers[index]
        category = CATEGORIES.index(buffer.category)
        self.now[category] = self.now[category] + sign * buffer.bytes

    def look(self, name: str) -> None:
        """Record this moment if it is the peak so far."""
        self.during.setdefault(name, tuple(self.now))  # a wait has the name of what it ends
        host = self.now[CATEGORIES.index("pinned_host")]
        total = sum(self.now) - host
        fuller = total > self.most
        if np.any(fuller):
            self.at, self.there = name, self.alive.copy()
            self.peaks = [where(fuller, n, p) for n, p in zip(self.now, self.peaks, strict=True)]
            self.most = where(fuller, total, self.most)
        self.host_peak = where(host > self.host_peak, host, self.host_peak)

    def block(
        self, block: Block, around: frozenset[int], carried: frozenset[int] = frozenset()
    ) -> None:
        """Walk operations while the buffers of `around` stay alive.

        Those `carried` from turn to turn of a loop have gaps: from the last use of what the turn
        before made to where this one makes it anew.
        """
        last = {i: k for k, step in enumerate(block) for i in (*step.reads, *step.writes)}
        gaps = gaps_in(block, carried)
        begins, ends = _grouped(gaps, 0), _grouped(gaps, 1)
        alive: set[int] = set()
        for index in begins.get(-1, ()):
            self.free(index)
        for position, step in enumerate(block):
            for index in ends.get(position, ()):
                self.allocate(index)
            born = [i for i in dict.fromkeys(step.writes) if i not in around and i not in alive]
            for index in born:
                dying = [old for old in step.over if old in alive and last.get(old) == position]
                size = self.buffers[index].bytes  # in all configurations
                for old in [i for i in dying if np.all(self.buffers[i].bytes == size)][:1]:
                    alive.remove(old)  # the new one is written over it
                    self.free(old)
                self.allocate(index)
                alive.add(index)
            self.look(step.name)
            through = frozenset(step.writes if isinstance(step, Loop) else ()) - self.persistent
            for inner in bodies(step):
                self.block(inner, around | alive, through & (around | alive))
            for index in begins.get(position, ()):
                self.free(index)
            for index in [i for i in alive if last.get(i, position) <= position]:
                alive.remove(index)
                self.free(index)


def _grouped(gaps: Mapping[int, tuple[int, int]], end: int) -> dict[int, list[int]]:
    """Position -> the buffers whose gap begins (0) or ends (1) there."""
    grouped: dict[int, list[int]] = {}
    for index, gap in gaps.items():
        grouped.setdefault(gap[end], []).append(index)
    return grouped


def gaps_in(block: Block, carried: frozenset[int]) -> dict[int, tuple[int, int]]:
    """Carried buffer -> position of its last use (-1: none) and of the operation that refills it.

    None where it is updated in place, or filled by the operation that uses it last.
    """
    used: dict[int, int] = dict.fromkeys(carried, -1)
    gaps: dict[int, tuple[int, int]] = {}
    for position, step in enumerate(block):
        for index in carried.intersection((*step.reads, *step.writes)) - gaps.keys():
            if index in step.writes and index not in step.reads:
                gaps[index] = used[index], position
            elif index in step.writes:
                carried = carried - {index}
            used[index] = position
    return {i: (before, made) for i, (before, made) in gaps.items() if made - before > 1}
