"""The timeline of many configurations at once: operations that are priced alike, in one call.

The same seconds as `scaling.simulate.step.price`, without what explains them: kernels of one kind
and format are rows of one array, and so are collectives over the same devices.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.meshes.cluster import Cluster
from scaling.profiles.profile import Profile
from scaling.program.ir import Collective, Kernel, Number, Program, collectives, kernels
from scaling.simulate.kernels import kernel_time
from scaling.simulate.step import device_groups, dispatch_time, shares_that_run
from scaling.simulate.timeline import Timeline, run_schedule

FIGURES = "flops", "vector_flops", "transcendentals", "bytes", "issue"  # of a kernel


def timeline_of(program: Program, cluster: Cluster, profile: Profile) -> Timeline:
    """The timeline of a program that is priced on a cluster, without sums by name.

    Raises:
        InputError: a figure that the program needs is in neither the cluster nor the profile.
    """
    times = dict(_kernel_times(program, cluster, profile))
    times |= dict(_collective_times(program, cluster, profile))
    times |= {op.name: times[op.name] * share for op, share in shares_that_run(program)}
    host = dispatch_time(program, profile.dispatch)
    return run_schedule(program, times, host, named=False)


def _kernel_times(
    program: Program, cluster: Cluster, profile: Profile
) -> Iterator[tuple[str, Number]]:
    alike: dict[Any, dict[str, Kernel]] = defaultdict(dict)
    for kernel, _ in kernels(program):
        multiplies = bool(np.any(kernel.flops))
        key = kernel.kind, kernel.dtype, kernel.origin.phase, len(kernel.dims), multiplies
        alike[key][kernel.name] = kernel
    for found in alike.values():
        every = list(found.values())
        rows: dict[str, Any] = {name: _rows([getattr(k, name) for k in every]) for name in FIGURES}
        dims = tuple(map(_rows, zip(*(k.dims for k in every), strict=True)))
        one = replace(every[0], **rows, dims=dims)
        yield from _named(found, kernel_time(one, cluster.accelerator, profile).time)


def _collective_times(
    program: Program, cluster: Cluster, profile: Profile
) -> Iterator[tuple[str, Number]]:
    alike: dict[Any, dict[str, Collective]] = defaultdict(dict)
    for collective, _ in collectives(program):
        alike[collective.kind, collective.axes, collective.groups][collective.name] = collective
    for found in alike.values():
        first = next(iter(found.values()))
        sizes, groups = _rows([c.bytes for c in found.values()]), device_groups(first, program.mesh)
        yield from _named(found, collective_time(first.kind, sizes, groups, cluster, profile).time)


def _rows(figures: Sequence[Number]) -> np.ndarray:
    """Figures of several operations: [operations, configurations], or [operations, 1]."""
    return np.array(np.broadcast_arrays(*(np.atleast_1d(figure) for figure in figures)), float)


def _named(operations: dict[str, Any], times: Number) -> Iterator[tuple[str, Number]]:
    """Each operation's name with its row; one column is one configuration."""
    rows = np.broadcast_to(times, (len(operations), np.shape(times)[-1]))
    for name, row in zip(operations, rows, strict=True):
        yield name, row if len(row) > 1 else row[0]
