"""The best configurations of a space: closed forms price all settings of a mesh at once.

    infeasible   sizes do not divide, the trainer does not run it, or it does not fit in memory
    pruned       a bound on its time is above the slowest of the best meshes so far
    priced       all others: step time of the closed-form program (`scaling.analytic.program`)

    space = priced + pruned + infeasible

Both bounds are true (`scaling.plan.bounds`), so nothing better is left out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from scaling.analytic.program import closed_form
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.plan.bounds import least_memory, least_time
from scaling.plan.space import Choices
from scaling.profiles.profile import Profile
from scaling.program.ir import Program
from scaling.run import Run
from scaling.simulate.batch import timeline_of
from scaling.simulate.capacity import capacity_of
from scaling.simulate.memory import memory_use
from scaling.simulate.prediction import TERMS

TOO_LARGE = "does not fit in memory"
Value = Callable[[np.ndarray, int], np.ndarray]  # (seconds of a step, devices) -> what is least


@dataclass(frozen=True, eq=False)
class Found:
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
    best: list[Found] = field(default_factory=list)
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


@dataclass(frozen=True)
class Target:
    """Where configurations are priced, and by what they are judged."""

    run: Run
    cluster: Cluster
    profile: Profile
    value: Value


def search(targets: Iterable[tuple[Target, Iterable[Choices]]], top: int) -> Search:
    """Price every mesh that may be among the `top` best; the same result as pricing all."""
    state = Search(top)
    waiting: list[tuple[float, Target, Choices]] = []
    closest: tuple[float, Target, Choices] | None = None  # of those that surely do not fit
    for target, every in targets:
        capacity = _most(target)
        for choices in every:
            state.space += choices.count
            if reason := choices.refusal or _misfit(target, choices):
                _refuse(state, reason, choices.count)
                continue
            least = least_memory(target.run, choices)
            _refuse(state, TOO_LARGE, int((least > capacity).sum()))
            if not (least <= capacity).any():
                if closest is None or least.min() - capacity < closest[0]:
                    closest = float(least.min()) - capacity, target, choices
                continue
            choices = choices.only(least <= capacity)
            waiting.append((_bound(target, choices), target, choices))
    for bound, target, choices in sorted(waiting, key=lambda item: item[0]):
        if bound > state.limit:
            state.pruned += choices.count
        else:
            _price(target, choices, state)
    if closest is not None and not state.best:
        _, target, choices = closest
        _lacking(target, choices, closed_form_of(target, choices), state)
    return state


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


def _most(target: Target) -> float:
    """Bytes of one device that no program exceeds."""
    nothing = Program("", "analytic", {}, ())
    capacity = capacity_of(target.cluster, nothing, target.run.software).bytes
    return np.inf if capacity is None else capacity


def _bound(target: Target, choices: Choices) -> float:
    """The least value of all settings of a mesh, at least."""
    seconds = least_time(target.run, target.cluster, target.profile, choices)
    return float(np.min(target.value(seconds, choices.mesh.devices)))


def closed_form_of(target: Target, choices: Choices) -> Program:
    """The Program of all settings of a mesh."""
    run = choices.run(target.run, 0)
    return closed_form(run, choices.mesh, target.cluster, choices.grid)


def _lacking(target: Target, choices: Choices, program: Program, state: Search) -> np.ndarray:
    """Bytes that each setting needs at its peak, less what there is; the least is kept."""
    capacity = capacity_of(target.cluster, program, target.run.software).bytes
    peak = np.broadcast_to(memory_use(program).peak, (choices.count,))
    missing = peak - (np.inf if capacity is None else capacity)
    least = int(np.argmin(missing))
    if 0 < missing[least] < state.shortfall[0]:
        state.shortfall = float(missing[least]), words_of(choices.run(target.run, least))
    return missing


def _price(target: Target, choices: Choices, state: Search) -> None:
    """Price the settings of a mesh that fit, and keep the best one."""
    try:
        program = closed_form_of(target, choices)
    except InputError as error:
        _refuse(state, str(error), choices.count)
        return
    fits = _lacking(target, choices, program, state) <= 0
    _refuse(state, TOO_LARGE, int((~fits).sum()))
    state.priced += int(fits.sum())
    if not fits.any():
        return
    line = timeline_of(program, target.cluster, target.profile)
    full = lambda figures: np.broadcast_to(np.asarray(figures, float), (choices.count,))
    seconds = full(line.total)
    value = np.where(fits, target.value(seconds, choices.mesh.devices), np.inf)
    index = int(np.argmin(value))
    terms = {name: float(full(getattr(line, name))[index]) for name in TERMS}
    found = Found(choices, target.cluster, index, float(value[index]), float(seconds[index]), terms)
    state.best = sorted([*state.best, found], key=lambda each: each.value)


def words_of(run: Run) -> str:
    """The flags of a configuration: `--mesh fsdp=64 --set batch.microbatches=8 --set remat=...`."""
    assert run.mesh is not None
    zero = [f"sharding.zero_stage={run.sharding.zero_stage}"] if run.mesh.fsdp > 1 else []
    settings = [f"batch.microbatches={run.batch.microbatches}", f"remat={run.remat}", *zero]
    return " ".join([f"--mesh {run.mesh}", *(f"--set {text}" for text in settings)])


def families(state: Search) -> Iterator[tuple[str, Found]]:
    """Each axis that some mesh cuts, with the best configuration that cuts it."""
    axes = dict.fromkeys(a for f in state.best for a, n in f.choices.mesh.sizes.items() if n > 1)
    for axis in axes:
        yield axis, next(f for f in state.best if getattr(f.choices.mesh, axis) > 1)
