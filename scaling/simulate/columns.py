"""Closed forms of many runs priced at once, as columns of one program if operations are alike.

    run         kernels and collectives      timeline and memory       range
    T0001       2 of 96 not priced yet       column 0 of 132           columns 0, 132, 264, 396
    T0002       0 of 96                      column 1                  ...

The runs may differ in their models, meshes, software and clusters. Of equal operations on a cluster
one is priced. The streams run once for all programs whose schedules are alike, but for the names of
operations and how often loops run: as they are priced, and at the ends of their ranges. Each run
gets what `scaling.simulate.step.price` and `scaling.simulate.uncertainty.step_range` give it, but
for the rounding of sums (1e-12, relative) where collectives hold kernels up.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat, zip_longest
from typing import Any

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.profiles.profile import Profile
from scaling.program.ir import Block, Category, Collective, Kernel, Loop, Number, Operation, Program
from scaling.simulate.memory import MemoryUse, memory_use
from scaling.simulate.prediction import TERMS
from scaling.simulate.side_by_side import stream_of
from scaling.simulate.step import (
    Costed,
    CostTable,
    Priced,
    busy_links,
    dispatch_time,
    lost_beside,
    times_of,
)
from scaling.simulate.timeline import Timeline, run_schedule
from scaling.simulate.uncertainty import range_cases, range_from


def price_all(
    places: Iterable[tuple[Program, Cluster, Profile]],
) -> list[tuple[Priced, tuple[Number, Number]]]:
    """Each program with its costs, timeline and memory, and the range of its step in seconds.

    The programs are closed forms of one configuration each. Of their memory only the peak is known.

    Raises:
        InputError: as `scaling.simulate.step.price`, of any of them.
    """
    tables: dict[tuple[int, int], CostTable] = {}
    alike: dict[Hashable, list[Column]] = defaultdict(list)
    columns = []
    for program, cluster, profile in places:
        profile = profile.of_program(program.is_xla)
        table = tables.setdefault((id(cluster), id(profile)), CostTable(cluster, profile))
        columns.append(column := Column(program, table))
        alike[column.structure].append(column)
    for group in alike.values():
        _price_alike(group)
    return [column.found for column in columns]


class Column:
    """A program of those that are alike, and what its operations cost."""

    found: tuple[Priced, tuple[Number, Number]]

    def __init__(self, program: Program, table: CostTable):
        on = table.cluster, table.profile
        self.costed = Costed(program, *on, table.kernels(program), table.collectives(program))
        self.ends = table.ends
        self.busy = busy_links(self.costed.collectives)
        self.sizes = [buffer.bytes for buffer in program.buffers]
        self.names: dict[str, int] = {}
        self.trips: list[tuple[Number, Number]] = []
        buffers = tuple((buffer.category, buffer.persistent) for buffer in program.buffers)
        measured = tuple(shares is None for shares in self.busy.values())
        is_slowed = table.profile.interference is not None
        self.structure = self._structure(program.schedule), buffers, measured, is_slowed

    def _structure(self, block: Block) -> tuple[Any, ...]:
        """What the operations have in common with those of others; notes their names and trips."""
        found: list[Any] = []
        for op in block:
            number = self.names.setdefault(op.name, len(self.names))
            one: tuple[Any, ...] = type(op), number, op.reads, op.writes, op.over
            if isinstance(op, Kernel):
                one += op.asynchronous, op.origin.phase == "optimizer", op.issue, op.late
            elif isinstance(op, Collective):
                one += op.asynchronous, stream_of(op), op.issue
            elif isinstance(op, Loop):
                self.trips.append((op.trips, op.bubble_trips))
                one += op.trips >= 1, self._structure(op.body)
            found.append(one)
        return tuple(found)

    @cached_property
    def cases(self) -> list[Mapping[str, Any]]:
        """Options of `run_schedule`: as it is priced, and those of its range."""
        program, cluster, profile = self.costed.program, self.costed.cluster, self.costed.profile
        times, host = times_of(self.costed.costs), dispatch_time(program, profile.dispatch)
        lost = lost_beside(program, times, cluster, profile)
        as_priced = {"times": times, "host": host, "lost": lost}
        return [as_priced, *range_cases(self.costed, self.ends)]


def _price_alike(group: Sequence[Column]) -> None:
    """Run the streams of programs that are alike, as priced and at the ends of their ranges."""
    lines: dict[int, Timeline] = {}
    for is_lost in (False, True):
        pairs = [(column, case) for column in group for case in column.cases]
        pairs = [pair for pair in pairs if bool(pair[1].get("lost")) == is_lost]
        found = _run([column for column, _ in pairs], [case for _, case in pairs]) if pairs else ()
        lines |= {id(case): line for (_, case), line in zip(pairs, found, strict=True)}
    for column, memory in zip(group, _peaks(group), strict=True):
        line, *ends = (lines[id(case)] for case in column.cases)
        priced = Priced(**vars(column.costed), timeline=line, memory=memory)
        column.found = priced, range_from(priced, *(end.total for end in ends))


def _run(columns: Sequence[Column], cases: Sequence[Mapping[str, Any]]) -> Iterator[Timeline]:
    def by_name(option: str) -> dict[str, np.ndarray]:
        rows = np.array([[*case.get(option, {}).values()] for case in cases], float).T
        return dict(zip(cases[0].get(option, ()), rows, strict=True))

    figure = lambda name: np.array([case.get(name, 0.0) for case in cases], float)
    shares = zip(*(c.busy.values() for c in columns), strict=True)
    busy = {
        name: None if every[0] is None else np.array(list(zip_longest(*every, fillvalue=0.0)))
        for name, every in zip(columns[0].busy, shares, strict=True)
    }
    line = run_schedule(
        _side_by_side(columns),
        by_name("times"),
        figure("host"),
        lost=by_name("lost"),
        busy=busy,
        held_up=figure("held_up"),
    )
    number = {name: i for i, name in enumerate(cases[0]["times"])}  # in the order of all
    sums = line.by_name, line.exposed_by_name
    places = [[number[name] for name in of_name] for of_name in sums]
    parts = _split([getattr(line, term) for term in TERMS], len(columns))
    named = (_split(of_name.values(), len(columns)) for of_name in sums)
    for case, terms, *seconds in zip(cases, parts, *named, strict=True):
        names, both = list(case["times"]), zip(places, seconds, strict=True)
        own = ([(names[i], n) for i, n in zip(*pair, strict=True)] for pair in both)
        yield Timeline(*terms, *map(dict, own))


def _side_by_side(columns: Sequence[Column]) -> Program:
    """The first program with the trips and buffers of all in arrays [columns]."""
    program = columns[0].costed.program
    trips = iter(np.array([column.trips for column in columns], float).T.swapaxes(0, 1))
    sizes = np.array([column.sizes for column in columns], float).T
    pairs = zip(program.buffers, sizes, strict=True)
    buffers = tuple(replace(buffer, bytes=every) for buffer, every in pairs)
    return replace(program, schedule=_with_trips(program.schedule, trips), buffers=buffers)


def _with_trips(block: Block, trips: Iterator[np.ndarray]) -> Block:
    found: list[Operation] = []
    for op in block:
        if isinstance(op, Loop):
            times, bubble = next(trips)
            op = replace(op, trips=times, bubble_trips=bubble, body=_with_trips(op.body, trips))
        found.append(op)
    return tuple(found)


def _split(figures: Iterable[Number], count: int) -> Iterator[tuple[float, ...]]:
    rows = [np.broadcast_to(each, (count,)).tolist() for each in figures]
    return zip(*rows, strict=True) if rows else repeat((), count)


def _peaks(columns: Sequence[Column]) -> Iterator[MemoryUse]:
    use = memory_use(_side_by_side(columns))
    figures = _split([use.peak, use.pinned_host, *use.by_category.values()], len(columns))
    for peak, host, *sizes in figures:
        by_category: dict[Category, Number] = dict(zip(use.by_category, sizes, strict=True))
        yield MemoryUse(peak, by_category, host, "", (), {})
