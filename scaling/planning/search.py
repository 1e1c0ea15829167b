"""The best configurations of a space: closed forms price all settings of many meshes at once.

    infeasible   sizes do not divide, the trainer does not run it, or it does not fit in memory
    pruned       a bound on its time is above the slowest of the best meshes so far
    priced       step time of the closed-form program (`scaling.analytic.program`)

    space = priced + pruned + infeasible, and what is left where a search was stopped

A configuration has a loose bound, at the best rates of the chip, and then a tight one: its own
calls, as if nothing held them up. Both are true (`scaling.planning.bounds`, `Calls.least`), so
nothing better is left out. In each wave the least of the loose bounds become tight, the least of
the tight ones are priced, and what lies above the best is cut.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.collectives.torus import NoBox
from scaling.meshes.errors import InputError
from scaling.planning.bounds import least_memory
from scaling.planning.constraints import PARTIAL
from scaling.planning.space import Choices, ChoicesBatch
from scaling.planning.target import PlanTarget, SearchHit, Waiting, values, waves
from scaling.program.ir import Program
from scaling.run import Run
from scaling.run.parallelism.rules import weight_shards, zero_stage
from scaling.simulate.prediction import TERMS

TOO_LARGE = "does not fit in memory"
TOO_FEW = "fewer sequences than microbatches on all batch shards (data x fsdp x expert)"
# Devices of all meshes that may be priced, chosen by this project: half a minute's work. Llama 3 8B
# on 65,536 devices has 1,098 such meshes, 7e7.
MOST_DEVICES = 10**8
# Configurations of the first wave that are bounded tightly, and of those that are priced. Each wave
# has GROWTH times as many: few are priced before something good is known.
FIRST_BOUNDED, FIRST_PRICED, GROWTH = 2048, 64, 4
CUTS = ("memory", "time", "calls")  # by a bound on memory, by the loose and the tight one on time


@dataclass
class Search:
    """What has been found so far."""

    top: int
    hits: dict[tuple[Any, ...], SearchHit] = field(default_factory=dict)  # best of each mesh
    space: int = 0
    priced: int = 0
    infeasible: int = 0
    refusals: dict[str, int] = field(default_factory=dict)  # reason -> configurations
    cut: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CUTS, 0))
    left: int = 0  # configurations that a search which was stopped says nothing of
    least_left: float = np.inf  # no value of theirs is below
    shortfall: tuple[float, str] = (np.inf, "")  # least bytes that are missing, and where
    closest: Waiting | None = None  # of what needs too much memory, with the bytes it lacks
    deferred: list[Waiting] = field(default_factory=list)  # of a wave, as the time was up
    stop: float = np.inf  # of the clock: from then on nothing is begun

    @property
    def is_over(self) -> bool:
        """True if the time is up."""
        return time.monotonic() > self.stop

    @cached_property
    def best(self) -> list[SearchHit]:
        """The best setting of every mesh that is priced; best first."""
        return sorted(self.hits.values(), key=lambda hit: hit.value)

    @property
    def pruned(self) -> int:
        """Configurations that a bound on their time leaves out."""
        return self.cut["time"] + self.cut["calls"]

    def refuse(self, reason: str, count: int) -> None:
        """Count configurations that cannot run."""
        self.infeasible += count
        if count:
            self.refusals[reason] = self.refusals.get(reason, 0) + count

    def runnable(self, target: PlanTarget, every: Iterable[Choices]) -> Iterator[Choices]:
        """The choices that nothing but memory may rule out; all are counted."""
        for choices in every:
            self.space += choices.count
            if reason := choices.refusal or target.misfit(choices.mesh):
                self.refuse(reason, choices.count)
                continue
            least = choices.mesh.batch_shards * np.asarray(choices.grid.microbatches)
            enough = choices.grid.global_batch >= least
            self.refuse(TOO_FEW, int((~enough).sum()))
            if enough.any():
                yield choices if enough.all() else choices.only(enough)

    def loose(self, spaces: Iterable[tuple[PlanTarget, Iterable[Choices]]]) -> Iterator[Waiting]:
        """What may fit in memory, with its loose bound; the mesh that comes closest is kept."""
        known: dict[Any, PlanTarget] = {}
        ready: list[Waiting] = []
        for target, every in spaces:
            alike = known.setdefault((target.cluster, id(target.profile)), target)
            vars(target)["prices"] = alike.prices  # of runs that vary on one cluster
            runnable = self.runnable(target, every)
            ready += (Waiting(np.zeros(each.count), target, each) for each in runnable)
        fitting: list[Waiting] = []
        for members, choices in waves(ready):
            target = members[0].target
            capacity = float(target.capacity(Program("", "analytic", {}, ())))  # the most of any
            lacks = least_memory(target.run, choices, target.share) - capacity
            for one, missing in zip(members, choices.parts(lacks), strict=True):
                fits = missing <= 0
                self.cut["memory"] += int((~fits).sum())
                self.refuse(TOO_LARGE, int((~fits).sum()))
                if fits.any():
                    fitting.append(one.only(fits))
                elif self.closest is None or missing.min() < self.closest.least:
                    self.closest = replace(one, bounds=missing)
        for members, choices in waves(fitting):
            target = members[0].target
            bounds = values(members, choices, target.bound(choices), target.watts())
            for one, least in zip(members, bounds, strict=True):
                yield replace(one, bounds=least)

    def lacking(self, target: PlanTarget, choices: ChoicesBatch, program: Program) -> np.ndarray:
        """Bytes that each setting takes at its peak, less what there is; the least is kept."""
        needed = np.broadcast_to(target.needed(program), (choices.count,))
        missing = needed - target.capacity(program)
        least = int(np.argmin(missing))
        if 0 < missing[least] < self.shortfall[0]:
            self.shortfall = float(missing[least]), words_of(choices.run(target.run, least))
        return missing

    def tight(self, wave: Iterable[Waiting]) -> Iterator[Waiting]:
        """Configurations with their tight bounds, of those that fit."""
        found = False
        for members, choices in waves(wave):
            if self.is_over and found:
                self.deferred += members
                continue
            target = members[0].target
            program = target.program(choices)
            missing = self.lacking(target, choices, program)
            try:
                calls = target.calls(program, choices)
                least = calls.least()
            except NoBox:
                reasons = [target.misplaced(one.choices.mesh, program) for one in members]
                for one, reason in zip(members, reasons, strict=True):
                    self.refuse(reason, one.choices.count * bool(reason))
                yield from self.tight(o for o, r in zip(members, reasons, strict=True) if not r)
                continue
            bounds = values(members, choices, least, target.watts(calls, least))
            for one, bound, lacks in zip(members, bounds, choices.parts(missing), strict=True):
                self.refuse(TOO_LARGE, int((lacks > 0).sum()))
                if (lacks <= 0).any():
                    found = True
                    yield replace(one, bounds=bound).only(lacks <= 0)

    def price(self, wave: Iterable[Waiting]) -> Iterator[Waiting]:
        """Price configurations that fit, keep the best one of each mesh; what was not priced."""
        for members, choices in waves(wave):
            if self.is_over and self.hits:
                yield from members
                continue
            target = members[0].target
            program = target.program(choices)
            calls = target.calls(program, choices)
            line = calls.timeline()
            self.priced += choices.count
            seconds = target.expected(program, line.total, line.hidden_communication)
            watts = target.watts(calls, line.total, line)
            figures = map(choices.parts, (line.total, *(getattr(line, name) for name in TERMS)))
            every = values(members, choices, seconds, watts)
            for one, *of_mesh in zip(members, every, *figures, strict=True):
                index = int(np.argmin(of_mesh[0]))
                least, total, *terms = (float(part[index]) for part in of_mesh)
                before = self.hits.get(one.key)
                if least < (before.value if before else np.inf):
                    parts = dict(zip(TERMS, terms, strict=True))
                    hit = SearchHit(one.choices, one.target, index, least, total, parts)
                    self.hits[one.key] = hit
        vars(self).pop("best", None)

    def keep(self, hit: SearchHit) -> None:
        """Take what was found elsewhere in the space for the best of its mesh."""
        self.hits[hit.key] = hit
        vars(self).pop("best", None)

    def useful(self, waiting: Iterable[Waiting], by: str) -> list[Waiting]:
        """What may be among the best, or the best that cuts an axis; least first."""
        limit = self.best[self.top - 1].value if len(self.best) >= self.top else np.inf
        of_axis: dict[str, float] = {}
        for hit in self.best:
            for axis, size in hit.choices.mesh.sizes.items():
                if size > 1:
                    of_axis.setdefault(axis, hit.value)
        found: list[Waiting] = []
        for one in waiting:
            cut = (axis for axis, size in one.choices.mesh.sizes.items() if size > 1)
            kept = one.bounds <= max([limit, *(of_axis.get(axis, np.inf) for axis in cut)])
            self.cut[by] += int((~kept).sum())
            if kept.any():
                found.append(one.only(kept))
        return sorted(found, key=lambda one: one.least)


def search(
    targets: Iterable[tuple[PlanTarget, Iterable[Choices]]],
    top: int,
    seconds: float | None = None,
) -> Search:
    """Find the `top` best meshes: the same result as pricing all.

    After so many `seconds`, and something that fits, no batch is begun; what is left is counted.
    """
    start, state = time.monotonic(), Search(top)
    loose = sorted(state.loose(targets), key=lambda one: one.least)
    # Groups have as many ids as devices.
    sizes = [each.choices.mesh.devices for each in loose]
    if sum(sizes) > MOST_DEVICES:
        raise InputError(
            f"{len(sizes):,} meshes of up to {max(sizes):,} devices may fit, of {sum(sizes):.1e} "
            f"devices in all; up to {MOST_DEVICES:.0e} are searched: use fewer nodes, or price one "
            "mesh with scaling predict"
        )
    tight: list[Waiting] = []
    bounded, priced = FIRST_BOUNDED, FIRST_PRICED
    state.stop = np.inf if seconds is None else start + seconds
    while (loose or tight) and not (state.is_over and state.hits):
        now, loose = _first(loose, bounded)
        tight = state.useful([*tight, *state.tight(now)], "calls")
        loose, state.deferred = [*loose, *state.deferred], []
        now, tight = _first(tight, priced)
        tight += state.price(now)
        loose, tight = state.useful(loose, "time"), state.useful(tight, "calls")
        bounded, priced = bounded * GROWTH, priced * (1 if loose else GROWTH)
    state.left = sum(one.choices.count for one in (*loose, *tight))
    state.least_left = min((one.least for one in (*loose, *tight)), default=np.inf)
    if not state.hits and (one := state.closest):
        alone = ChoicesBatch((one.choices,))
        state.lacking(one.target, alone, one.target.program(alone))
    return state


def _first(waiting: list[Waiting], count: int) -> tuple[list[Waiting], list[Waiting]]:
    """The first meshes, of about so many configurations, and the others."""
    ends = np.cumsum([one.choices.count for one in waiting])
    number = int(np.searchsorted(ends, count)) + 1
    return waiting[:number], waiting[number:]


def settings_of(run: Run) -> dict[str, Any]:
    """What a plan sets beside the mesh, by dotted key of run.json."""
    settings = {"batch.microbatches": run.batch.microbatches, "remat": str(run.remat)}
    if run.pipeline.remat_layers is not None and run.remat == "full":
        settings[PARTIAL] = run.pipeline.remat_layers
    if run.mesh and weight_shards(run, run.mesh) > 1:
        settings["sharding.zero_stage"] = zero_stage(run, run.mesh)
    return settings


def words_of(run: Run) -> str:
    """A configuration: `mesh fsdp=64, batch.microbatches=8, remat=full, sharding.zero_stage=3`."""
    return ", ".join([f"mesh {run.mesh}", *(f"{k}={v}" for k, v in settings_of(run).items())])
