"""The best configurations of a space: closed forms price all settings of many meshes at once.

    infeasible   sizes do not divide, the trainer does not run it, or it does not fit in memory
    pruned       a bound on its time is above the slowest of the best meshes so far
    priced       all others: step time of the closed-form program (`scaling.analytic.program`)

    space = priced + pruned + infeasible

Both bounds are true (`scaling.planning.bounds`), so nothing better is left out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from scaling.analytic.program import closed_form
from scaling.collectives.torus import NoBox
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.shape import AxisSize, MeshShape
from scaling.planning.bounds import least_memory, least_time
from scaling.planning.space import Choices, ChoicesBatch, batched, described
from scaling.profiles.profile import Profile
from scaling.program.ir import Number, Program, collectives
from scaling.run import Run
from scaling.simulate.batch import Prices, timeline_of
from scaling.simulate.capacity import capacity_of
from scaling.simulate.memory import memory_use
from scaling.simulate.prediction import TERMS

TOO_LARGE = "does not fit in memory"
TOO_FEW = "fewer sequences than microbatches on all batch shards (data x fsdp x expert)"
# Devices of all meshes that may be priced, chosen by this project: half a minute's work. Llama 3 8B
# on 65,536 devices has 1,098 such meshes, 7e7.
MOST_DEVICES = 10**8
FIRST_WAVE = 64  # meshes that are priced before the bounds of the others are looked at again
Value = Callable[
    [np.ndarray, AxisSize], np.ndarray
]  # (seconds of a step, devices) -> what is least


@dataclass(frozen=True, eq=False)
class SearchHit:
    """The best setting of one mesh that fits."""

    choices: Choices
    target: "PlanTarget"
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


@dataclass(frozen=True, eq=False)
class PlanTarget:
    """Where configurations are priced, and by what they are judged."""

    run: Run
    cluster: Cluster
    profile: Profile
    value: Value

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
        return self.value(seconds, choices.mesh.devices)

    def capacity(self, program: Program) -> Number:
        """Bytes that a program can take on one device; infinite where that is not known."""
        most = capacity_of(self.cluster, program, self.run.software).bytes
        return np.inf if most is None else most

    def misplaced(self, mesh: MeshShape, program: Program) -> str:
        """Why nobody prices a mesh's collectives on a torus; "" if they can be priced."""
        try:
            for kind, axes in dict.fromkeys((c.kind, c.axes) for c, _ in collectives(program)):
                self.prices.figures(kind, self.prices.layout(mesh.sizes, axes))
        except NoBox as error:
            return str(error)
        return ""


@dataclass(frozen=True)
class UnpricedMesh:
    """A mesh that is not priced yet."""

    bound: float  # of its value; of what does not fit, bytes that are missing at least
    target: PlanTarget
    choices: Choices


@dataclass
class Search:
    """What has been found so far; best first."""

    top: int
    best: list[SearchHit] = field(default_factory=list)
    space: int = 0
    priced: int = 0
    pruned: int = 0
    infeasible: int = 0
    refusals: dict[str, int] = field(default_factory=dict)  # reason -> configurations
    shortfall: tuple[float, str] = (np.inf, "")  # least bytes that are missing, and where

    @property
    def limit(self) -> float:
        """The value from which on a mesh is of no use."""
        return self.best[self.top - 1].value if len(self.best) >= self.top else np.inf

    def refuse(self, reason: str, count: int) -> None:
        """Count configurations that cannot run."""
        self.infeasible += count
        if count:
            self.refusals[reason] = self.refusals.get(reason, 0) + count

    def runnable(self, target: PlanTarget, every: Iterable[Choices]) -> Iterator[Choices]:
        """The choices that nothing but memory may rule out; all are counted."""
        for choices in every:
            self.space += choices.count
            if reason := choices.refusal or _misfit(target, choices):
                self.refuse(reason, choices.count)
                continue
            least = choices.mesh.batch_shards * np.asarray(choices.grid.microbatches)
            enough = choices.grid.global_batch >= least
            self.refuse(TOO_FEW, int((~enough).sum()))
            if enough.any():
                yield choices if enough.all() else choices.only(enough)

    def fitting(
        self, target: PlanTarget, choices: ChoicesBatch
    ) -> tuple[list[Choices], list[UnpricedMesh]]:
        """What may fit in memory, and meshes of which no setting does, with what they lack."""
        capacity = float(target.capacity(Program("", "analytic", {}, ())))  # the most of any
        fitting: list[Choices] = []
        lacking: list[UnpricedMesh] = []
        bytes_ = choices.parts(least_memory(target.run, choices))
        for least, each in zip(bytes_, choices.every, strict=True):
            fits = least <= capacity
            self.refuse(TOO_LARGE, int((~fits).sum()))
            if fits.any():
                fitting.append(each if fits.all() else each.only(fits))
            else:
                lacking.append(UnpricedMesh(float(least.min()) - capacity, target, each))
        return fitting, lacking

    def lacking(self, target: PlanTarget, choices: ChoicesBatch, program: Program) -> np.ndarray:
        """Bytes that each setting needs at its peak, less what there is; the least is kept."""
        peak = np.broadcast_to(memory_use(program).peak, (choices.count,))
        missing = peak - target.capacity(program)
        least = int(np.argmin(missing))
        if 0 < missing[least] < self.shortfall[0]:
            self.shortfall = float(missing[least]), words_of(choices.run(target.run, least))
        return missing

    def price(self, target: PlanTarget, choices: ChoicesBatch) -> None:
        """Price the settings that fit, and keep the best one of each mesh."""
        program = target.program(choices)
        fits = self.lacking(target, choices, program) <= 0
        if not fits.any():
            return self.refuse(TOO_LARGE, choices.count)
        try:
            line = timeline_of(program, target.prices)
        except NoBox:
            reasons = [(each, target.misplaced(each.mesh, program)) for each in choices.every]
            for each, reason in reasons:
                self.refuse(reason, each.count * bool(reason))
            if left := tuple(each for each, reason in reasons if not reason):
                self.price(target, ChoicesBatch(left))
            return
        self.refuse(TOO_LARGE, int((~fits).sum()))
        self.priced += int(fits.sum())
        value = np.where(fits, target.value(np.asarray(line.total), choices.mesh.devices), np.inf)
        figures = (fits, value, line.total, *(getattr(line, name) for name in TERMS))
        for each, *of_mesh in zip(choices.every, *map(choices.parts, figures), strict=True):
            index = int(np.argmin(of_mesh[1]))
            does_fit, least, seconds, *terms = (float(part[index]) for part in of_mesh)
            if does_fit and least < np.inf:
                time = dict(zip(TERMS, terms, strict=True))
                self.best.append(SearchHit(each, target, index, least, seconds, time))
        self.best.sort(key=lambda each: each.value)


def search(targets: Iterable[tuple[PlanTarget, Iterable[Choices]]], top: int) -> Search:
    """Price every mesh that may be among the `top` best; the same result as pricing all."""
    state = Search(top)
    waiting: list[UnpricedMesh] = []
    closest: list[UnpricedMesh] = []
    for target, every in targets:
        for choices in batched(target.run, state.runnable(target, every)):
            fitting, lacking = state.fitting(target, choices)
            closest = sorted([*closest, *lacking], key=lambda each: each.bound)[:1]
            for some in batched(target.run, fitting):
                bounds = some.parts(target.bound(some))
                pairs = zip(bounds, some.every, strict=True)
                waiting += [UnpricedMesh(float(bound.min()), target, each) for bound, each in pairs]
    _check_work(waiting)
    waiting.sort(key=lambda each: each.bound)
    wave = FIRST_WAVE
    while waiting:
        useful = [each for each in waiting if each.bound <= state.limit]
        state.pruned += sum(each.choices.count for each in waiting[len(useful) :])
        now, waiting = useful[:wave], useful[wave:]
        for target in dict.fromkeys(each.target for each in now):
            mine = (each.choices for each in now if each.target is target)
            for choices in batched(target.run, mine):
                state.price(target, choices)
        wave *= 2
    for each in closest if not state.best else ():
        alone = ChoicesBatch((each.choices,))
        state.lacking(each.target, alone, each.target.program(alone))
    return state


def _misfit(target: PlanTarget, choices: Choices) -> str:
    try:
        check_fits(choices.mesh, target.cluster)
    except InputError as error:
        return str(error)
    return ""


def _check_work(waiting: list[UnpricedMesh]) -> None:
    """Raise InputError for more than a search can price: groups have as many ids as devices."""
    sizes = [each.choices.mesh.devices for each in waiting]
    if sum(sizes) > MOST_DEVICES:
        raise InputError(
            f"{len(sizes):,} meshes of up to {max(sizes):,} devices may fit, of {sum(sizes):.1e} "
            f"devices in all; up to {MOST_DEVICES:.0e} are searched: use fewer nodes, or price one "
            "mesh with scaling predict"
        )


def settings_of(run: Run) -> dict[str, Any]:
    """What a plan sets beside the mesh, by dotted key of run.json."""
    zero = {"sharding.zero_stage": run.sharding.zero_stage}
    settings = {"batch.microbatches": run.batch.microbatches, "remat": str(run.remat)}
    return settings | (zero if run.mesh and run.mesh.fsdp > 1 else {})


def words_of(run: Run) -> str:
    """A configuration: `mesh fsdp=64, batch.microbatches=8, remat=full, sharding.zero_stage=3`."""
    return ", ".join([f"mesh {run.mesh}", *(f"{k}={v}" for k, v in settings_of(run).items())])
