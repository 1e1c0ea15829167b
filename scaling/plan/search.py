"""The best configurations of a space: closed forms price all settings of a mesh at once.

    infeasible   sizes do not divide, the trainer does not run it, or it does not fit in memory
    pruned       a bound on its step time is above the slowest of the best meshes so far
    priced       all others: step time of the closed-form program (`scaling.analytic.program`)

    space = priced + pruned + infeasible

The bound is the model's FLOPs, masked attention scores left out, at the best rate that the profile
has for any product, with the bubble of the pipeline around its layers. So nothing better is left
out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from scaling.analytic.program import closed_form
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.models.accounting import model_flops
from scaling.plan.space import Choices, busy_share
from scaling.profiles.profile import ANY, Profile
from scaling.run import Run
from scaling.simulate.capacity import capacity_of
from scaling.simulate.kernels import peak_rate
from scaling.simulate.memory import memory_use
from scaling.simulate.prediction import TERMS
from scaling.simulate.step import price

Value = Callable[[np.ndarray, int], np.ndarray]  # (seconds of a step, devices) -> what is least


@dataclass(frozen=True)
class Found:
    """The best setting of one mesh that fits."""

    choices: Choices
    cluster: Cluster
    index: int  # of the setting in the choices
    value: float  # of the objective
    step_time: float  # s
    peak: float  # bytes of one device
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

    def add(self, found: Found) -> None:
        """Keep the best setting of another mesh; of the others for each axis the best one."""
        self.best.append(found)
        self.best.sort(key=lambda each: each.value)


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
    for target, every in targets:
        for choices in every:
            state.space += choices.count
            reason = choices.refusal or _misfit(target, choices)
            if reason:
                _refuse(state, reason, choices.count)
            else:
                waiting.append((_bound(target, choices), target, choices))
    for bound, target, choices in sorted(waiting, key=lambda item: item[0]):
        if bound > state.limit:
            state.pruned += choices.count
        else:
            _price(target, choices, state)
    return state


def _refuse(state: Search, reason: str, count: int) -> None:
    state.infeasible += count
    state.refusals[reason] = state.refusals.get(reason, 0) + count


def _misfit(target: Target, choices: Choices) -> str:
    try:
        check_fits(choices.mesh, target.cluster)
    except InputError as error:
        return str(error)
    return ""


def _bound(target: Target, choices: Choices) -> float:
    """The least value of all settings of a mesh, at least."""
    run, devices = target.run, choices.mesh.devices
    batch, length, dtype = run.batch.global_batch, run.batch.seq_len, run.precision.compute
    head = 6.0 * run.model.d_model * run.model.vocab_size * run.batch.tokens  # in no bubble
    layers = model_flops(run.model, batch, length, causal=True) - head
    share = busy_share(run, choices.mesh, np.asarray(choices.grid.microbatches))
    rate = devices * _fastest(target, dtype)
    return float(np.min(target.value((layers / share + head) / rate, devices)))


def _fastest(target: Target, dtype: str) -> float:
    """FLOP/s that no product exceeds, causal attention's counted without masked scores."""
    chip, profile = target.cluster.accelerator, target.profile
    peaks = {fit.dtype: fit.peak for fit in profile.matmul if fit.peak}
    peak = peaks.get(dtype) or peak_rate(chip, dtype)
    fits = [fit for fit in profile.matmul if fit.dtype in (dtype, ANY)]
    rates = [peak * min(fit.efficiency, fit.sustained) for fit in fits]
    return max([*rates, *((fit.peak or peak) * fit.efficiency for fit in profile.attention)])


def _price(target: Target, choices: Choices, state: Search) -> None:
    """Price the settings of a mesh that fit, and keep the best one."""
    run, cluster = choices.run(target.run, 0), target.cluster
    full = lambda figures: np.broadcast_to(np.asarray(figures, float), (choices.count,))
    try:
        program = closed_form(run, choices.mesh, cluster, choices.grid)
    except InputError as error:
        _refuse(state, str(error), choices.count)
        return
    capacity, peak = capacity_of(cluster, program).bytes, full(memory_use(program).peak)
    fits = peak <= (np.inf if capacity is None else capacity)
    state.priced += int(fits.sum())
    if capacity is not None and not fits.all():
        _refuse(state, "does not fit in memory", int((~fits).sum()))
        least = int(np.argmin(peak))
        missing = float(peak[least]) - capacity
        if not fits.any() and missing < state.shortfall[0]:
            state.shortfall = missing, words_of(choices.run(target.run, least))
    if not fits.any():
        return
    priced = price(program, cluster, target.profile)
    seconds = full(priced.timeline.total)
    value = np.where(fits, target.value(seconds, choices.mesh.devices), np.inf)
    index = int(np.argmin(value))
    terms = {name: float(full(getattr(priced.timeline, name))[index]) for name in TERMS}
    best = choices, cluster, index, float(value[index]), float(seconds[index]), float(peak[index])
    state.add(Found(*best, terms))


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
