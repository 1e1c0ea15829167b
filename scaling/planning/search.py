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
from scaling.program.ir import Program, collectives
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
    cluster: Cluster
    index: int  # of the setting in the choices
    value: float  # of the objective
    step_time: float  # s
    time: dict[str, float]  # s, by TERMS


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


@dataclass(frozen=True, eq=False)
class Target:
    """Where configurations are priced, and by what they are judged."""

    run: Run
    cluster: Cluster
    profile: Profile
    value: Value

    @cached_property
    def prices(self) -> Prices:
        """Of collectives, looked up once."""
        return Prices(self.cluster, self.profile)


@dataclass(frozen=True)
class UnpricedMesh:
    """A mesh that is not priced yet."""

    bound: float  # of its value; of what does not fit, bytes that are missing at least
    target: Target
    choices: Choices


def search(targets: Iterable[tuple[Target, Iterable[Choices]]], top: int) -> Search:
    """Price every mesh that may be among the `top` best; the same result as pricing all."""
    state = Search(top)
    waiting: list[UnpricedMesh] = []
    closest: list[UnpricedMesh] = []
    for target, every in targets:
        for choices in batched(target.run, _runnable(target, every, state)):
            fitting, lacking = _fitting(target, choices, state)
            closest = sorted([*closest, *lacking], key=lambda each: each.bound)[:1]
            for some in batched(target.run, fitting):
                bounds = some.parts(_bound(target, some))
                pairs = zip(bounds, some.every, strict=True)
                waiting += [UnpricedMesh(float(bound.min()), target, each) for bound, each in pairs]
    _check_work(waiting)
    waiting.sort(key=lambda each: each.bound)
    wave = FIRST_WAVE
    while waiting:
        useful = [each for each in waiting if each.bound <= state.limit]
        state.pruned += _configurations(waiting) - _configurations(useful)
        now, waiting = useful[:wave], useful[wave:]
        for target in dict.fromkeys(each.target for each in now):
            mine = (each.choices for each in now if each.target is target)
            for choices in batched(target.run, mine):
                _price(target, choices, state)
        wave *= 2
    for each in closest if not state.best else ():
        alone = ChoicesBatch((each.choices,))
        _lacking(each.target, alone, closed_form_of(each.target, alone), state)
    return state


def _check_work(waiting: list[UnpricedMesh]) -> None:
    """Raise InputError for more than a search can price: groups have as many ids as devices."""
    sizes = [each.choices.mesh.devices for each in waiting]
    if sum(sizes) > MOST_DEVICES:
        raise InputError(
            f"{len(sizes):,} meshes of up to {max(sizes):,} devices may fit, of {sum(sizes):.1e} "
            f"devices in all; up to {MOST_DEVICES:.0e} are searched: use fewer nodes, or price one "
            "mesh with scaling predict"
        )


def _configurations(waiting: Iterable[UnpricedMesh]) -> int:
    return sum(each.choices.count for each in waiting)


def _runnable(target: Target, every: Iterable[Choices], state: Search) -> Iterator[Choices]:
    """The choices that nothing but memory may rule out; all are counted."""
    for choices in every:
        state.space += choices.count
        if reason := choices.refusal or _misfit(target, choices):
            _refuse(state, reason, choices.count)
        else:
            enough = choices.grid.global_batch >= choices.mesh.batch_shards * np.asarray(
                choices.grid.microbatches
            )
            _refuse(state, TOO_FEW, int((~enough).sum()))
            if enough.any():
                yield choices if enough.all() else choices.only(enough)


def _refuse(state: Search, reason: str, count: int) -> None:
    state.infeasible += count
    if count:
        state.refusals[reason] = state.refusals.get(reason, 0) + count


def _misfit(target: Target, choices: Choices) -> str:
    try:
        check_fits(choices.mesh, target.cluster)
    except InputError as error:
        return str(error)
    return ""


def _fitting(
    target: Target, choices: ChoicesBatch, state: Search
) -> tuple[list[Choices], list[UnpricedMesh]]:
    """What may fit in memory, and meshes of which no setting does, with what they lack."""
    nothing = Program("", "analytic", {}, ())  # no program leaves more
    most = capacity_of(target.cluster, nothing, target.run.software).bytes
    capacity = np.inf if most is None else float(most)
    fitting: list[Choices] = []
    lacking: list[UnpricedMesh] = []
    for least, each in zip(
        choices.parts(least_memory(target.run, choices)), choices.every, strict=True
    ):
        fits = least <= capacity
        _refuse(state, TOO_LARGE, int((~fits).sum()))
        if fits.any():
            fitting.append(each if fits.all() else each.only(fits))
        else:
            lacking.append(UnpricedMesh(float(least.min()) - capacity, target, each))
    return fitting, lacking


def _bound(target: Target, choices: ChoicesBatch) -> np.ndarray:
    """The least value of each configuration, at least."""
    seconds = least_time(target.run, target.cluster, target.profile, choices)
    return target.value(seconds, choices.mesh.devices)


def closed_form_of(target: Target, choices: ChoicesBatch) -> Program:
    """The Program of all settings of several meshes."""
    run = described(target.run, choices)
    return closed_form(run, choices.mesh, target.cluster, choices.grid)


def _lacking(target: Target, choices: ChoicesBatch, program: Program, state: Search) -> np.ndarray:
    """Bytes that each setting needs at its peak, less what there is; the least is kept."""
    capacity = capacity_of(target.cluster, program, target.run.software).bytes
    peak = np.broadcast_to(memory_use(program).peak, (choices.count,))
    missing = peak - (np.inf if capacity is None else capacity)
    least = int(np.argmin(missing))
    if 0 < missing[least] < state.shortfall[0]:
        state.shortfall = float(missing[least]), words_of(choices.run(target.run, least))
    return missing


def _price(target: Target, choices: ChoicesBatch, state: Search) -> None:
    """Price the settings that fit, and keep the best one of each mesh."""
    program = closed_form_of(target, choices)
    fits = _lacking(target, choices, program, state) <= 0
    if not fits.any():
        return _refuse(state, TOO_LARGE, choices.count)
    try:
        line = timeline_of(program, target.prices)
    except NoBox:
        reasons = [(each, _misplaced(target, each.mesh, program)) for each in choices.every]
        for each, reason in reasons:
            _refuse(state, reason, each.count * bool(reason))
        if left := tuple(each for each, reason in reasons if not reason):
            _price(target, ChoicesBatch(left), state)
        return
    _refuse(state, TOO_LARGE, int((~fits).sum()))
    state.priced += int(fits.sum())
    seconds, *terms = (
        choices.parts(figures) for figures in (line.total, *(getattr(line, n) for n in TERMS))
    )
    for each, its_fits, its_seconds, *its_terms in zip(
        choices.every, choices.parts(fits), seconds, *terms, strict=True
    ):
        value = np.where(its_fits, target.value(its_seconds, each.mesh.devices), np.inf)
        index = int(np.argmin(value))
        if its_fits[index]:
            time = {n: float(t[index]) for n, t in zip(TERMS, its_terms, strict=True)}
            best = float(value[index]), float(its_seconds[index]), time
            state.best.append(SearchHit(each, target.cluster, index, *best))
    state.best.sort(key=lambda each: each.value)


def settings_of(run: Run) -> dict[str, Any]:
    """What a plan sets beside the mesh, by dotted key of run.json."""
    zero = {"sharding.zero_stage": run.sharding.zero_stage}
    settings = {"batch.microbatches": run.batch.microbatches, "remat": str(run.remat)}
    return settings | (zero if run.mesh and run.mesh.fsdp > 1 else {})


def _misplaced(target: Target, mesh: MeshShape, program: Program) -> str:
    """Why nobody prices a mesh's collectives on a torus; "" if they can be priced."""
    prices = target.prices
    try:
        for kind, axes in dict.fromkeys((c.kind, c.axes) for c, _ in collectives(program)):
            prices.figures(kind, prices.span(mesh.sizes, axes))
    except NoBox as error:
        return str(error)
    return ""


def words_of(run: Run) -> str:
    """A configuration: `mesh fsdp=64, batch.microbatches=8, remat=full, sharding.zero_stage=3`."""
    return ", ".join([f"mesh {run.mesh}", *(f"{k}={v}" for k, v in settings_of(run).items())])
