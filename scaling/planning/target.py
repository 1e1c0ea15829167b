"""Where configurations are priced, what waits for it, and the best setting found of a mesh."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.analytic.program import closed_form
from scaling.collectives.torus import NoBox
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.shape import AXES, AxisSize, MeshShape
from scaling.planning.bounds import least_time
from scaling.planning.space import Choices, ChoicesBatch, batched, described
from scaling.profiles.power import power_file
from scaling.profiles.profile import Profile
from scaling.program.ir import Number, Program, collectives
from scaling.run import Run
from scaling.simulate.batch import Calls, Prices
from scaling.simulate.capacity import (
    RESERVE,
    RISK,
    capacity_of,
    fit_probability,
    needed_bytes,
    needed_share,
)
from scaling.simulate.memory import memory_use
from scaling.simulate.summary import board_power
from scaling.simulate.timeline import Timeline

Key = tuple[Any, ...]  # of a mesh and where it lies
Value = Callable[..., np.ndarray]  # (seconds of a step, devices[, W of one]) -> what is least


@dataclass(frozen=True, eq=False)
class PlanTarget:
    """Where configurations are priced, and by what they are judged."""

    run: Run
    cluster: Cluster
    profile: Profile
    value: Value
    risk: float = RISK  # of running out of memory, at most
    # W of a device by those of its board, where energy is least.
    draw: Callable[[Number], Number] | None = None

    @cached_property
    def prices(self) -> Prices:
        """Of collectives, looked up once."""
        return Prices(self.cluster, self.profile)

    def program(self, choices: ChoicesBatch) -> Program:
        """The Program of all settings of several meshes."""
        run = described(self.run, choices)
        return closed_form(run, choices.mesh, self.cluster, choices.grid)

    def bound(self, choices: ChoicesBatch) -> np.ndarray:
        """The least value of each configuration, at least."""
        seconds = least_time(self.run, self.cluster, self.profile, choices)
        if self.draw is None:
            return self.value(seconds, choices.mesh.devices)
        idle = power_file().board.idle * (self.cluster.accelerator.power or 0.0)
        return self.value(seconds, choices.mesh.devices, self.draw(idle))

    def values(
        self, calls: Calls, seconds: Number, devices: AxisSize, line: Timeline | None = None
    ) -> np.ndarray:
        """What is least, of steps with this timeline, or a bound, of steps of so many seconds.

        Energy grows with the seconds of a step and with those of its kernels.
        """
        program = calls.program
        expected = np.asarray(self.expected(program, seconds) if line else seconds)
        if self.draw is None:
            return self.value(expected, devices)
        busy = line.compute + line.optimizer if line else calls.computing
        power = board_power(self.cluster, program.mesh, program.operations, seconds, busy)
        assert power is not None
        return self.value(expected, devices, self.draw(power.total))

    def capacity(self, program: Program) -> Number:
        """Bytes that a program can take on one device; infinite where that is not known."""
        most = capacity_of(self.cluster, program, self.run.software).bytes
        return np.inf if most is None else most

    @property
    def share(self) -> float:
        """What a step takes at that risk over its closed form, beside what is stored."""
        return needed_share(self.run.software, self.risk)

    def needed(self, program: Program) -> Number:
        """Bytes that a step takes of a device, more with the risk's probability."""
        return needed_bytes(program, memory_use(program).peak, self.run.software, self.risk)

    def expected(self, program: Program, seconds: Number) -> Number:
        """Seconds of a step over the probability that it fits: as many tries as it takes."""
        most = capacity_of(self.cluster, program, self.run.software).bytes
        if most is None or self.run.software not in RESERVE:
            return seconds
        peak = memory_use(program).peak
        return seconds / fit_probability(program, peak, most, self.run.software)

    def misfit(self, mesh: MeshShape) -> str:
        """Why a mesh does not fit on the cluster; "" if it does."""
        try:
            check_fits(mesh, self.cluster)
        except InputError as error:
            return str(error)
        return ""

    def misplaced(self, mesh: MeshShape, program: Program) -> str:
        """Why nobody prices a mesh's collectives on a torus; "" if they can be priced."""
        try:
            for kind, axes in dict.fromkeys((c.kind, c.axes) for c, _ in collectives(program)):
                self.prices.figures(kind, self.prices.layout(mesh.sizes, axes))
        except NoBox as error:
            return str(error)
        return ""


@dataclass(frozen=True, eq=False)
class SearchHit:
    """The best setting of one mesh that fits."""

    choices: Choices
    target: PlanTarget
    index: int  # of the setting in the choices
    value: float  # of the objective
    step_time: float  # s
    time: dict[str, float]  # s, by TERMS

    @property
    def cluster(self) -> Cluster:
        """Where it is priced."""
        return self.target.cluster

    @property
    def run(self) -> Run:
        """The run with its mesh and settings."""
        return self.choices.run(self.target.run, self.index)

    @property
    def key(self) -> Key:
        """See `Waiting.key`."""
        return _key(self.choices, self.target)


@dataclass(frozen=True, eq=False)
class Waiting:
    """Configurations of one mesh that are not priced yet."""

    bounds: np.ndarray  # [configurations], of their values
    target: PlanTarget
    choices: Choices

    @property
    def key(self) -> Key:
        """The mesh and where it lies, of which one setting, and one run, may be the best."""
        return _key(self.choices, self.target)

    @cached_property
    def least(self) -> float:
        """The least of the bounds."""
        return float(self.bounds.min())

    def only(self, chosen: np.ndarray) -> "Waiting":
        """The configurations that are True, of which there are some."""
        if chosen.all():
            return self
        return replace(self, bounds=self.bounds[chosen], choices=self.choices.only(chosen))


def _key(choices: Choices, target: PlanTarget) -> Key:
    place, sizes = target.cluster, choices.mesh.sizes
    return place.name, place.nodes, *(sizes[axis] for axis in AXES)


def waves(
    wave: Iterable[Waiting],
) -> Iterator[tuple[PlanTarget, list[Waiting], ChoicesBatch]]:
    """The configurations in batches of one target, and what each of their meshes waits as."""
    wave = list(wave)
    of_choices = {id(one.choices): one for one in wave}
    for target in dict.fromkeys(one.target for one in wave):
        for choices in batched(target.run, (o.choices for o in wave if o.target is target)):
            yield target, [of_choices[id(each)] for each in choices.every], choices
