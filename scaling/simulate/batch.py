"""The timeline of many configurations at once: operations that are priced alike, in one call.

For programs of the closed form, which take no rows by index, on devices in the order of the mesh:
the same seconds as `scaling.simulate.step.price` but for the rounding of sums (3e-11, relative, in
steps of 100,000 iterations), without what explains them. Kernels of one kind
and format are rows of one array, and so are collectives over the same axes. Groups of devices that
lie alike are priced once, whatever the mesh that they belong to:

    data=2,fsdp=4,tensor=8   over fsdp   2 x [4] x 8
    fsdp=4,tensor=8          over fsdp       [4] x 8
    data=4,tensor=16         over data       [4] x 16

but for a torus, whose dimensions the sizes of all axes choose (`scaling.meshes.placement`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
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
    Collective,
    CollectiveKind,
    Kernel,
    Loop,
    Number,
    Program,
    Wait,
    collectives,
    kernels,
)
from scaling.simulate.kernels import kernel_time
from scaling.simulate.side_by_side import COMMUNICATION, stream_of
from scaling.simulate.step import device_groups, scheduled, where_run
from scaling.simulate.timeline import Timeline

# Figures of a kernel.
FIGURES = "flops", "vector_flops", "transcendentals", "bytes", "host_bytes", "visible"
# Devices in a row and whether they are one group, outermost first.
Layout = tuple[tuple[int, bool], ...]
# Sizes of several meshes in device order, outermost first; which one each configuration has: int
# [configurations].
Meshes = tuple[Sequence[Mapping[str, int]], np.ndarray]


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
        times, busy = np.zeros(bytes.shape), None
        for i, layout in enumerate(layouts):
            where, groups = number == i if len(number) > 1 else ..., self.groups(layout)
            cost = collective_time(kind, bytes[:, where], groups, self.cluster, self.profile)
            times[:, where] = cost.time
            if cost.busy is not None:
                busy = np.zeros((len(cost.busy), *times.shape)) if busy is None else busy
                busy[:, :, where] = cost.busy
        return times, busy


@dataclass(frozen=True)
class Calls:
    """A program on a cluster with the seconds of each of its calls, before they run in streams."""

    program: Program
    prices: Prices
    times: Mapping[str, Number]
    busy: Mapping[str, np.ndarray | None]  # shares of them that pools of links are busy

    @property
    def profile(self) -> Profile:
        """That of the program."""
        return self.prices.profile.of_program(self.program.is_xla)

    def timeline(self) -> Timeline:
        """The timeline, without sums by name."""
        where = self.prices.cluster, self.profile
        return scheduled(self.program, self.times, *where, self.busy, named=False)

    @property
    def computing(self) -> Number:
        """Seconds of the kernels that are not bubble, alone."""
        return _computing(self.program.schedule, self.times)

    def least(self) -> Number:
        """Seconds that the step takes at least: calls that run one after the other, alone.

        No block is over before all of its kernels are, nor before all of its collectives of either
        stream that it waits for.
        """
        least, _ = _least(self.program.schedule, where_run(self.program, self.times))
        return least


def calls_of(program: Program, prices: Prices, meshes: Meshes | None = None) -> Calls:
    """The program priced on a cluster.

    Args:
        program: of the closed form.
        prices: of its collectives.
        meshes: with the device order of each, where there are several; None: the program's.

    Raises:
        InputError: a figure that the program needs is in neither the cluster nor the profile.
    """
    profile = prices.profile.of_program(program.is_xla)
    times = dict(_kernel_times(program, prices.cluster, profile))
    busy: dict[str, np.ndarray | None] = {}
    for name, seconds, shares in _collective_times(program, prices, meshes or _meshes(program)):
        times[name], busy[name] = seconds, shares
    return Calls(program, prices, times, busy)


def timeline_of(program: Program, prices: Prices) -> Timeline:
    """The timeline of a program that is priced on a cluster, without sums by name."""
    return calls_of(program, prices).timeline()


def _least(block: Block, times: Mapping[str, Number]) -> tuple[Number, list[Number]]:
    """Seconds of a block at least, and of what each stream communicates inside of it."""
    device: Number = 0.0
    streams: list[Number] = [0.0] * len(COMMUNICATION)
    issued: dict[str, int] = {}
    for op in block:
        if isinstance(op, Loop):
            body, inside = _least(op.body, times)
            trips = np.trunc(op.trips)
            device = device + trips * body
            streams = [sent + trips * more for sent, more in zip(streams, inside, strict=True)]
        elif isinstance(op, Kernel):
            device = device + (0.0 if op.asynchronous else times[op.name])
        elif isinstance(op, Collective):
            issued[op.name] = COMMUNICATION.index(stream_of(op))
            device = device + (0.0 if op.asynchronous else times[op.name])
        if isinstance(op, Wait) or (isinstance(op, Collective) and not op.asynchronous):
            if (stream := issued.pop(op.name, None)) is not None:
                streams[stream] = streams[stream] + times[op.name]
    return reduce(np.maximum, streams, device), streams


def _computing(block: Block, times: Mapping[str, Number]) -> Number:
    """Seconds of the kernels of a block without those of bubbles and copies beside."""
    seconds: Number = 0.0
    for op in block:
        if isinstance(op, Loop):
            seconds = seconds + np.trunc(op.trips - op.bubble_trips) * _computing(op.body, times)
        elif isinstance(op, Kernel) and not op.asynchronous:
            seconds = seconds + times[op.name]
    return seconds


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


def _meshes(program: Program) -> Meshes:
    table = np.array(np.broadcast_arrays(*map(np.atleast_1d, program.mesh.values())))
    distinct, number = np.unique(table, axis=1, return_inverse=True)
    return [dict(zip(program.mesh, map(int, sizes), strict=True)) for sizes in distinct.T], number


def _collective_times(
    program: Program, prices: Prices, meshes: Meshes
) -> Iterator[tuple[str, Number, np.ndarray | None]]:
    """Name, seconds and the share of them that each pool of links is busy."""
    alike: dict[Any, dict[str, Collective]] = defaultdict(dict)
    for collective, _ in collectives(program):
        alike[collective.kind, collective.axes, collective.groups][collective.name] = collective
    for (kind, axes, stated), by_name in alike.items():
        sizes, parts = (_rows([getattr(c, n) for c in by_name.values()]) for n in ("bytes", "part"))
        if stated:
            groups = device_groups(next(iter(by_name.values())), program, prices.cluster)
            cost = collective_time(kind, sizes, groups, prices.cluster, prices.profile)
            seconds, busy = cost.time, cost.busy
        else:
            of_mesh = [prices.layout(mesh, axes) for mesh in meshes[0]]
            layouts = {layout: i for i, layout in enumerate(dict.fromkeys(of_mesh))}
            number = np.array([layouts[layout] for layout in of_mesh])[meshes[1]]
            seconds, busy = prices.seconds(kind, sizes, list(layouts), number)
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
