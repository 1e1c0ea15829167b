"""The timeline of many configurations at once: operations that are priced alike, in one call.

For programs of the closed form, which take no rows by index, on devices in the order of the mesh:
the same seconds as `scaling.simulate.step.price`, without what explains them. Kernels of one kind
and format are rows of one array, and so are collectives over the same axes. Groups of devices that
lie alike are priced once, whatever the mesh that they belong to:

    data=2,fsdp=4,tensor=8   over fsdp   2 x [4] x 8
    fsdp=4,tensor=8          over fsdp       [4] x 8
    data=4,tensor=16         over data       [4] x 16

but for a torus, whose dimensions the sizes of all axes choose (`scaling.meshes.placement`).

Closed forms of different runs, on any clusters, are columns of one program if their operations are
alike (`price_all`): of equal operations one is priced, and the streams run once for all columns.
Each gets what `price` and `step_range` give, to the last bit.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat, zip_longest
from typing import Any

import numpy as np

from scaling.collectives.candidates import seconds_of
from scaling.collectives.cost import collective_figures, collective_time
from scaling.meshes.cluster import Cluster
from scaling.meshes.host_link import host_bandwidth
from scaling.meshes.placement import groups_on
from scaling.profiles.profile import Profile
from scaling.program.ir import (
    Block,
    Category,
    Collective,
    CollectiveKind,
    Kernel,
    Loop,
    Number,
    Operation,
    Program,
    collectives,
    kernels,
)
from scaling.simulate.kernels import kernel_time
from scaling.simulate.memory import MemoryUse, memory_use
from scaling.simulate.prediction import TERMS
from scaling.simulate.step import (
    Costed,
    CostTable,
    Priced,
    busy_links,
    device_groups,
    dispatch_time,
    lost_beside,
    scheduled,
    times_of,
)
from scaling.simulate.timeline import Timeline, run_schedule
from scaling.simulate.uncertainty import range_cases, range_from

# Figures of a kernel.
FIGURES = "flops", "vector_flops", "transcendentals", "bytes", "host_bytes", "visible"
Layout = tuple[tuple[int, bool], ...]  # devices in a row and whether they are one group, outermost
# first


@dataclass(frozen=True)
class Prices:
    """Figures of collectives on a cluster, looked up once for all meshes."""

    cluster: Cluster
    profile: Profile
    cache: dict[tuple[CollectiveKind, Layout], np.ndarray | None] = field(default_factory=dict)

    def figures(self, kind: CollectiveKind, layout: Layout) -> np.ndarray | None:
        """Figures of each algorithm: float [5, algorithms]; None where a line was measured."""
        if (kind, layout) not in self.cache:
            groups = self.groups(layout)
            self.cache[kind, layout] = collective_figures(kind, groups, self.cluster, self.profile)
        return self.cache[kind, layout]

    def layout(self, mesh: Mapping[str, int], axes: Iterable[str]) -> Layout:
        """How groups along `axes` lie on a mesh: axes without devices left out, like ones joined.

        On a torus none are joined.
        """
        layout: list[tuple[int, bool]] = []
        for axis, size in mesh.items():
            if size > 1:
                taken = axis in axes
                if self.cluster.torus is None and layout and layout[-1][1] == taken:
                    size *= layout.pop()[0]
                layout.append((size, taken))
        return tuple(layout)

    def groups(self, layout: Layout) -> np.ndarray:
        """Device ids [groups, members]."""
        sizes = {str(place): size for place, (size, _) in enumerate(layout)}
        taken = [str(place) for place, (_, taken) in enumerate(layout) if taken]
        return groups_on(sizes, taken, self.cluster)

    def seconds(
        self, kind: CollectiveKind, bytes: np.ndarray, layouts: Sequence[Layout], number: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Seconds of calls of bytes [calls, configurations], over groups that lie as `layouts`, of
        which each configuration has the one of its number; shares of them that links are busy."""
        fitted = [f for f in (self.figures(kind, layout) for layout in layouts) if f is not None]
        if len(fitted) < len(layouts):
            return self._one_by_one(kind, bytes, layouts, number)
        most = max(figures.shape[1] for figures in fitted)
        every = [figures[:, np.arange(most) % figures.shape[1]] for figures in fitted]
        table = np.stack(every, axis=-1)[..., number]  # [5 + pools, algorithms, configurations]
        seconds = np.array([seconds_of(table[:, i], bytes) for i in range(most)])
        best, least = np.argmin(seconds, axis=0), np.min(seconds, axis=0)
        wires = table[5:, best, np.arange(table.shape[2])]  # [pools, calls, configurations]
        return least, wires * bytes / np.where(least > 0, least, 1.0)

    def _one_by_one(
        self, kind: CollectiveKind, bytes: np.ndarray, layouts: Sequence[Layout], number: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        bytes = np.broadcast_to(bytes, np.broadcast_shapes(bytes.shape, (1, len(number))))
        times = np.zeros(bytes.shape)
        for i, layout in enumerate(layouts):
            where, groups = number == i if len(number) > 1 else ..., self.groups(layout)
            cost = collective_time(kind, bytes[:, where], groups, self.cluster, self.profile)
            times[:, where] = cost.time
        return times, None


def timeline_of(program: Program, prices: Prices) -> Timeline:
    """The timeline of a program that is priced on a cluster, without sums by name.

    Raises:
        InputError: a figure that the program needs is in neither the cluster nor the profile.
    """
    cluster, profile = prices.cluster, prices.profile.of_program(program.is_xla)
    times = dict(_kernel_times(program, cluster, profile))
    busy: dict[str, np.ndarray | None] = {}
    for name, seconds, shares in _collective_times(program, prices):
        times[name], busy[name] = seconds, shares
    return scheduled(program, times, cluster, profile, busy, named=False)


def _kernel_times(
    program: Program, cluster: Cluster, profile: Profile
) -> Iterator[tuple[str, Number]]:
    alike: dict[Any, dict[str, Kernel]] = defaultdict(dict)
    link = host_bandwidth(cluster)
    for kernel, _ in kernels(program):
        multiplies = bool(np.any(kernel.flops))
        key = kernel.kind, kernel.dtype, kernel.origin.phase, len(kernel.dims), multiplies
        alike[key][kernel.name] = kernel
    for by_name in alike.values():
        every = list(by_name.values())
        rows: dict[str, Any] = {name: _rows([getattr(k, name) for k in every]) for name in FIGURES}
        dims = tuple(map(_rows, zip(*(k.dims for k in every), strict=True)))
        one = replace(every[0], **rows, dims=dims)
        yield from _named(by_name, kernel_time(one, cluster.accelerator, profile, link).time)


def _collective_times(
    program: Program, prices: Prices
) -> Iterator[tuple[str, Number, np.ndarray | None]]:
    """Name, seconds and the share of them that each pool of links is busy."""
    alike: dict[Any, dict[str, Collective]] = defaultdict(dict)
    for collective, _ in collectives(program):
        alike[collective.kind, collective.axes, collective.groups][collective.name] = collective
    table = np.array(np.broadcast_arrays(*map(np.atleast_1d, program.mesh.values())))
    distinct, number = np.unique(table, axis=1, return_inverse=True)
    meshes = [dict(zip(program.mesh, map(int, sizes), strict=True)) for sizes in distinct.T]
    for (kind, axes, stated), by_name in alike.items():
        sizes, parts = (_rows([getattr(c, n) for c in by_name.values()]) for n in ("bytes", "part"))
        if stated:
            groups = device_groups(next(iter(by_name.values())), program, prices.cluster)
            cost = collective_time(kind, sizes, groups, prices.cluster, prices.profile)
            seconds, busy = cost.time, cost.busy
        else:
            layouts = [prices.layout(mesh, axes) for mesh in meshes]
            seconds, busy = prices.seconds(kind, sizes, layouts, number)
        for call, (name, time) in enumerate(_named(by_name, seconds * parts)):
            yield name, time, None if busy is None else busy[:, call]


def _rows(figures: Sequence[Number]) -> np.ndarray:
    """Figures of several operations: [operations, configurations], or [operations, 1]."""
    return np.array(np.broadcast_arrays(*(np.atleast_1d(figure) for figure in figures)), float)


def _named(operations: dict[str, Any], times: Number) -> Iterator[tuple[str, Number]]:
    """Each operation's name with its row; one column is one configuration."""
    rows = np.broadcast_to(times, (len(operations), np.shape(times)[-1]))
    for name, row in zip(operations, rows, strict=True):
        yield name, row if len(row) > 1 else row[0]


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
                one += op.asynchronous, op.origin.phase == "optimizer", op.issue
            elif isinstance(op, Collective):
                one += op.asynchronous, op.kind == "permute", op.issue
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
    """The timeline of each column, with the options of `run_schedule` that its case has."""

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
    number = {name: i for i, name in enumerate(cases[0]["times"])}
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
    """The figures of each column."""
    rows = [np.broadcast_to(each, (count,)).tolist() for each in figures]
    return zip(*rows, strict=True) if rows else repeat((), count)


def _peaks(columns: Sequence[Column]) -> Iterator[MemoryUse]:
    """The memory of each column at its peak."""
    use = memory_use(_side_by_side(columns))
    figures = _split([use.peak, use.pinned_host, *use.by_category.values()], len(columns))
    for peak, host, *sizes in figures:
        by_category: dict[Category, Number] = dict(zip(use.by_category, sizes, strict=True))
        yield MemoryUse(peak, by_category, host, "", (), {})
