"""Every step of a program with its seconds, on one cluster: what the prediction sums up."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshes.cluster import Cluster
from meshes.shape import groups_along
from scaling.cost.calls import call_time
from scaling.cost.collectives import CollectiveCost, collective_time
from scaling.cost.kernels import KernelCost, kernel_time
from scaling.cost.profile import Profile
from scaling.memory import MemoryUse, memory_use
from scaling.program import Collective, Number, Program, collectives, kernels
from scaling.timeline import Timeline, replay


@dataclass(frozen=True)
class Priced:
    """A program on a cluster: what each step costs, when it runs, what is held."""

    program: Program
    cluster: Cluster
    profile: Profile
    kernels: Mapping[str, KernelCost]  # by name, one call
    collectives: Mapping[str, CollectiveCost]  # by name, one call
    timeline: Timeline
    memory: MemoryUse


def price(
    program: Program,
    cluster: Cluster,
    profile: Profile,
    host: Number = 0.0,
    record: bool = False,
) -> Priced:
    """Price a program.

    Args:
        program: what one device does.
        cluster: where.
        profile: how efficient its chips and links are.
        host: seconds per step during which the device waits for the host, beyond what calling a
            program is known to cost there.
        record: keep every event of the timeline, for a trace.

    Raises:
        InputError: a figure that the program needs is in neither the cluster nor the profile.
    """
    kernel = {k.name: kernel_time(k, cluster.accelerator, profile) for k, _ in kernels(program)}
    collective = {
        c.name: _collective(c, program, cluster, profile) for c, _ in collectives(program)
    }
    times = {name: cost.time for name, cost in (kernel | collective).items()}
    timeline = replay(program, times, host + call_time(program, profile.call), record)
    return Priced(program, cluster, profile, kernel, collective, timeline, memory_use(program))


def _collective(
    collective: Collective, program: Program, cluster: Cluster, profile: Profile
) -> CollectiveCost:
    groups = groups_of(collective, program.mesh)
    return collective_time(collective.kind, collective.bytes, groups, cluster, profile)


def groups_of(collective: Collective, mesh: Mapping[str, int]) -> np.ndarray:
    """Device ids [groups, members]: along the axes, or those that the program names."""
    if collective.groups:
        return np.array(collective.groups)
    return groups_along(mesh, collective.axes)
