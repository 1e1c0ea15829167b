"""Where configurations are priced, what waits for it, and the best setting found of a mesh."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.analytic.program import closed_form
from scaling.collectives.torus import NoBox
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.shape import AXES, MeshShape
from scaling.planning.bounds import least_time
from scaling.planning.space import Choices, ChoicesBatch, batched, described, hashable
from scaling.profiles.power import power_file
from scaling.profiles.profile import Profile
from scaling.program.ir import Number, Program, collectives
from scaling.run import Run
from scaling.simulate.batch import Calls, Prices, calls_of
from scaling.simulate.capacity import (
    RESERVE,
    RISK,
    capacity_of,
    fit_probability,
    least_share,
    needed_bytes,
    slower,
)
from scaling.simulate.memory import memory_use
from scaling.simulate.prediction import CROWDED
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

    def calls(self, program: Program, choices: ChoicesBatch) -> Calls:
        """The program of some choices with the seconds of its calls."""
        meshes = [each.mesh.sizes for each in choices.every]
        number = np.repeat(np.arange(len(meshes)), choices.counts)
        return calls_of(program, self.prices, (meshes, number))

    def bound(self, choices: ChoicesBatch) -> np.ndarray:
        """Seconds of a step that no configuration gets below."""
        return least_time(self.run, self.cluster, self.profile, choices)

    @cached_property
    def kind(self) -> tuple[Any, ...]:
        """What targets have in common whose configurations are priced side by side: their runs
        differ in nothing but the batch and the device order."""
        batch = replace(self.run.batch, global_batch=1)
        run = replace(hashable(self.run), batch=batch, mesh=None, device_order=AXES)
        return run, self.cluster, id(self.profile), self.risk

    def watts(
        self, calls: Calls | None = None, seconds: Number = 0.0, line: Timeline | None = None
    ) -> Number | None:
        """W of a device in a step with this timeline, at least in one of so many seconds, or idle;
        None where energy does not matter.

        Energy grows with the seconds of a step and with those of its kernels.
        """
        if self.draw is None:
            return None
        if calls is None:
            return self.draw(power_file().board.idle * (self.cluster.accelerator.power or 0.0))
        busy = line.compute + line.optimizer if line else calls.computing
        program = calls.program
        power = board_power(self.cluster, program.mesh, program.operations, seconds, busy)
        assert power is not None
        return self.draw(power.total)

    def capacity(self, program: Program) -> Number:
        """Bytes that a program can take on one device; infinite where that is not known."""
        most = capacity_of(self.cluster, program, self.run.software).bytes
        return np.inf if most is None else most

    @property
    def share(self) -> float:
        """What steps take at least at that risk over their closed form, beside what is stored."""
        return least_share(self.run.software, self.risk)

    def needed(self, program: Program) -> Number:
        """Bytes that a step takes of a device, more with the risk's probability."""
        return needed_bytes(program, memory_use(program).peak, self.run.software, self.risk)

    def expected(self, program: Program, seconds: Number, hidden: Number = 0.0) -> Number:
        """Seconds of a step as it may turn out near the limit of the memory.

        Of PyTorch longer where it may wait for its allocator, over the probability that it fits: as
        many tries as it takes. Of XLA with the communication that it then no longer hides.
        """
        most = capacity_of(self.cluster, program, self.run.software).bytes
        if most is None:
            return seconds
        peak = memory_use(program).peak
        if self.run.software not in RESERVE:
            return seconds + hidden * np.greater(peak, CROWDED * most)
        near = program, peak, most, self.run.software
        with np.errstate(divide="ignore"):  # what cannot fit
            return seconds * slower(*near) / fit_probability(*near)

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


def waves(wave: Iterable[Waiting]) -> Iterator[tuple[list[Waiting], ChoicesBatch]]:
    """The configurations in batches of one kind, and what each of their meshes waits as."""
    of_target: dict[PlanTarget, list[Waiting]] = defaultdict(list)
    for one in wave:
        of_target[one.target].append(one)
    alike: dict[tuple[Any, ...], list[Waiting]] = defaultdict(list)
    for target, members in of_target.items():
        alike[target.kind] += members
    for members in alike.values():
        of_choices = {id(one.choices): one for one in members}
        for choices in batched(members[0].target.run, (one.choices for one in members)):
            yield [of_choices[id(each)] for each in choices.every], choices


def values(
    members: Sequence[Waiting], choices: ChoicesBatch, seconds: Number, watts: Number | None
) -> list[np.ndarray]:
    """What each member's steps of so many seconds are judged by: [configurations] of each."""
    parts = zip(*(choices.parts(x) for x in (seconds, watts) if x is not None), strict=True)
    pairs = zip(members, parts, strict=True)
    return [one.target.value(s, one.choices.mesh.devices, *w) for one, (s, *w) in pairs]
