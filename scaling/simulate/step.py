"""A program priced on one cluster: seconds of every operation, its timeline and its memory.

Calling a program once costs, before and besides its kernels,

    time = overhead + arguments and results x each + fresh bytes / rate

A GPU's host runs ahead of it and its memory is its own: there is nothing to add.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from scaling.collectives.algorithms import memory_passes
from scaling.collectives.cost import CollectiveCost, collective_time
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.host_link import host_bandwidth
from scaling.meshes.placement import devices_of
from scaling.meshes.shape import groups_along
from scaling.profiles.profile import DispatchFit, Profile
from scaling.program.ir import (
    CONSTANTS,
    Collective,
    Kernel,
    Number,
    Operation,
    Program,
    as_float,
    collectives,
    conditionals,
    kernels,
)
from scaling.simulate.kernels import KernelCost, kernel_time
from scaling.simulate.memory import MemoryUse, memory_use
from scaling.simulate.timeline import Timeline, run_schedule

Cost = KernelCost | CollectiveCost
Costs = Mapping[str, Cost]  # by name, one call
Call = tuple[Kernel | Collective, Number]  # and its calls in a step


@dataclass(frozen=True)
class Costed:
    """A program on a cluster with the cost of each operation."""

    program: Program
    cluster: Cluster
    profile: Profile
    kernels: Mapping[str, KernelCost]  # by name, one call
    collectives: Mapping[str, CollectiveCost]  # by name, one call

    @property
    def costs(self) -> Costs:
        """Of each operation, by name, one call."""
        return {**self.kernels, **self.collectives}


@dataclass(frozen=True)
class Priced(Costed):
    """That with its timeline and memory."""

    timeline: Timeline
    memory: MemoryUse


# Figures of a kernel that its cost does not depend on.
UNPRICED = {*"name origin reads writes over inside asynchronous estimate issue late".split()}
priced_figures = attrgetter("origin.phase", *({f.name for f in fields(Kernel)} - UNPRICED))


@dataclass(frozen=True)
class CostTable:
    """Costs of operations on a cluster: of those that are alike one is priced."""

    cluster: Cluster
    profile: Profile
    known: dict[Hashable, Cost] = field(default_factory=dict)
    ends: dict[int, tuple[Number, ...]] = field(default_factory=dict)  # of `range_cases`

    def kernels(self, program: Program) -> dict[str, KernelCost]:
        """The cost of each kernel, by name."""
        strict, link = program.source != "compiled", host_bandwidth(self.cluster)
        cost = lambda k: _kernel_cost(k, self.cluster, self.profile, link, strict)
        return {k.name: self._found(priced_figures(k), cost, k) for k, _ in kernels(program)}

    def collectives(self, program: Program) -> dict[str, CollectiveCost]:
        """The cost of each collective, by name."""
        place = *program.mesh.items(), program.device_ids
        key = lambda c: (c.kind, c.axes, c.bytes, c.part, c.groups, place)
        cost = lambda c: _collective_cost(c, program, self.cluster, self.profile)
        return {c.name: self._found(key(c), cost, c) for c, _ in collectives(program)}

    def _found(self, key: Hashable, cost: Callable[[Any], Any], operation: Operation) -> Any:
        try:
            found = self.known.get(key)
        except TypeError:  # arrays over configurations have no hash
            return cost(operation)
        if found is None:
            found = self.known[key] = cost(operation)
        return found


def price(
    program: Program,
    cluster: Cluster,
    profile: Profile,
    record: bool = False,
    known: dict[Hashable, Cost] | None = None,
) -> Priced:
    """Price a program on a cluster, with the efficiencies of a profile.

    Args:
        record: keep every event of the timeline, for a trace.
        known: of a `CostTable` with other programs on the cluster.

    Products of a compiled program in a format whose rate nobody knows are not priced, and their
    costs say so.

    Raises:
        InputError: a figure that the program needs is in neither the cluster nor the profile.
    """
    profile = profile.of_program(program.is_xla)
    table = CostTable(cluster, profile, {} if known is None else known)
    kernel, collective = table.kernels(program), table.collectives(program)
    costs: Costs = {**kernel, **collective}
    busy = busy_links(costs)
    timeline = scheduled(program, times_of(costs), cluster, profile, busy, record=record)
    return Priced(program, cluster, profile, kernel, collective, timeline, memory_use(program))


def with_shortest_branches(priced: Priced) -> Priced:
    """The step if every conditional takes its shortest branch; the same where it has none."""
    program, costs = priced.program, priced.costs
    if not any(conditionals(program.schedule)):
        return priced
    busy = busy_links(costs)
    where = priced.cluster, priced.profile
    short = scheduled(program, times_of(costs), *where, busy, shortest=True)
    return replace(priced, timeline=short)


def scheduled(
    program: Program,
    times: Mapping[str, Number],
    cluster: Cluster,
    profile: Profile,
    busy: Mapping[str, np.ndarray | None],
    **options: bool,
) -> Timeline:
    """The timeline of a program whose calls take so long; options are those of `run_schedule`."""
    times = where_run(program, times)
    host = dispatch_time(program, profile.dispatch)
    lost = lost_beside(program, times, cluster, profile)
    return run_schedule(program, times, host, lost=lost, busy=busy, **options)


def where_run(program: Program, times: Mapping[str, Number]) -> dict[str, Number]:
    """The seconds of each call; none in configurations where an operation does nothing."""
    times = dict(times)
    for op, _ in program.operations:
        if isinstance(op, Kernel | Collective):
            runs = np.not_equal(op.bytes if isinstance(op, Collective) else op.flops + op.bytes, 0)
            if np.ndim(runs) and not np.all(runs):
                times[op.name] = times[op.name] * runs
    return times


def lost_beside(
    program: Program, times: Mapping[str, Number], cluster: Cluster, profile: Profile
) -> dict[str, Number]:
    """Share of its rate that a kernel loses beside each asynchronous collective, by name.

    Empty where kernels lose nothing.
    """
    if profile.interference is None:
        return {}
    lost = {}
    bandwidth = profile.memory.bandwidth or cluster.accelerator.memory_bandwidth or np.inf
    for call in (call for call, _ in collectives(program) if call.asynchronous):
        ranks = len(call.groups[0]) if call.groups else prod(program.mesh[a] for a in call.axes)
        moved = memory_passes(call.kind, ranks) * call.bytes * call.part
        seconds = np.where(np.equal(times[call.name], 0.0), np.inf, times[call.name])
        lost[call.name] = as_float(profile.interference.lost(moved / seconds / bandwidth))
    return lost


def times_of(costs: Costs) -> dict[str, Number]:
    """Seconds of one call, by name."""
    return {name: cost.time for name, cost in costs.items()}


def busy_links(costs: Costs) -> dict[str, np.ndarray | None]:
    """Shares of its time that each pool of links is busy with a collective, by name."""
    return {name: cost.busy for name, cost in costs.items() if isinstance(cost, CollectiveCost)}


def _kernel_cost(
    kernel: Kernel, cluster: Cluster, profile: Profile, host: float | None, strict: bool
) -> KernelCost:
    chip = cluster.accelerator
    try:
        return kernel_time(kernel, chip, profile, host)
    except InputError:
        if strict or not np.any(kernel.flops):
            raise
    moved = replace(kernel, flops=0.0, kind="custom")
    return replace(kernel_time(moved, chip, profile, host), unpriced=kernel.dtype)


def _collective_cost(
    c: Collective, program: Program, cluster: Cluster, profile: Profile
) -> CollectiveCost:
    groups = device_groups(c, program, cluster)
    cost = collective_time(c.kind, c.bytes, groups, cluster, profile)
    if not np.any(c.part != 1):
        return cost
    return replace(cost, time=cost.time * c.part, lower_bound=cost.lower_bound * c.part)


def running(priced: Priced) -> list[Call]:
    """Each kernel and collective that runs, once, with all its calls in a step.

    Not those of branches that are not taken.
    """
    totals: dict[str, Call] = {}
    for step, calls in priced.program.operations:
        if isinstance(step, Kernel | Collective) and step.name in priced.timeline.by_name:
            before = totals[step.name][1] if step.name in totals else 0
            totals[step.name] = step, before + calls
    return list(totals.values())


def running_kernels(priced: Priced) -> list[tuple[Kernel, Number]]:
    """The kernels among what runs."""
    return [(step, calls) for step, calls in running(priced) if isinstance(step, Kernel)]


def running_collectives(priced: Priced) -> list[tuple[Collective, Number]]:
    """The collectives among what runs, without those of groups of one."""
    return [
        (step, calls)
        for step, calls in running(priced)
        if isinstance(step, Collective) and (step.axes or step.groups)
    ]


def device_groups(collective: Collective, program: Program, cluster: Cluster) -> np.ndarray:
    """Device ids [groups, members]: along the axes, or those that the program names."""
    groups = np.array(collective.groups or groups_along(program.mesh, collective.axes), int)
    return partition_devices(program, cluster)[groups]


def partition_devices(program: Program, cluster: Cluster) -> np.ndarray:
    """Device ids [partitions]: as the program says, else where its mesh lies on the cluster."""
    return np.array(program.device_ids or devices_of(program.mesh, cluster), int)


def dispatch_time(program: Program, fit: DispatchFit | None) -> Number:
    """Seconds of one call; 0 where devices do not wait for their host."""
    if fit is None:
        return 0.0
    temporary = temporaries(program)
    fresh = np.where(temporary > fit.kept, temporary, 0.0) / fit.fresh_bandwidth
    time = fit.overhead + fit.per_buffer * buffers_of(program) + fresh
    return time if np.ndim(time) else float(time)


def buffers_of(program: Program) -> int:
    """Arguments and results of one device."""
    return sum(buffer.persistent and buffer.name != CONSTANTS for buffer in program.buffers)


def temporaries(program: Program) -> Number:
    """Bytes on one device at the peak that hold neither arguments nor results."""
    persistent = sum(buffer.bytes for buffer in program.buffers if buffer.persistent)
    peak = program.compiler_peak if program.compiler_peak is not None else memory_use(program).peak
    return np.maximum(peak - persistent, 0.0)
