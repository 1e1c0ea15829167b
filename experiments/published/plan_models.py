"""What models say of configurations that somebody tried: time, and whether it fits.

    shipped     the closed form as `scaling predict` prices it
    left_out    the same, its software's constants, and what it needs of memory, fitted without the
                source of the run (`software_fits.json`), or without its model
    size_left   the same without runs on as few devices, or as many
    calculon    calculon.csv.gz: what Calculon printed, whose head says with which settings

Any other function of the rows may be scored in their place (`score_plans.solve`).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np

from experiments.published.csv_rows import rows_of
from experiments.published.fit_software import known_fits, profile_for, size_of
from experiments.published.sweeps import Tried
from experiments.published.training import FOLDER
from scaling.analytic.program import analytic_program, flash_rate
from scaling.analytic.software import SoftwareTraits, traits_of
from scaling.analytic.step import Grid, policies, structure
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape, side_by_side
from scaling.meshes.units import BINARY
from scaling.planning.target import PlanTarget
from scaling.profiles.profile import Profile
from scaling.run import Run, read_run
from scaling.simulate import capacity
from scaling.simulate.batch import Prices, timeline_of
from scaling.simulate.capacity import LIKELY, Demand, capacity_of, fit_probability
from scaling.simulate.memory import memory_use
from scaling.simulate.resolve import target

CALCULON = FOLDER / "calculon.csv.gz"
CALCULON_MEMORY = 80 * BINARY["Gi"]  # bytes of tier 1 in its files of A100 and H100


@dataclass(frozen=True)
class Guess:
    """What a model says of one configuration."""

    time: float  # s; infinite where it refuses the run
    fits: bool  # more likely than not
    cost: float | None = None  # s expected, by which a plan ranks; None: the time
    safe: bool | None = None  # fits at the risk that a plan takes; None: as it fits

    @property
    def key(self) -> tuple[bool, float]:
        """What a plan ranks by, the least first."""
        safe = self.fits if self.safe is None else self.safe
        return not safe, self.time if self.cost is None else self.cost


Model = Callable[[Sequence[Tried]], Sequence[Guess]]
Asked = tuple[str, tuple[Any, ...]]  # a run.json, what replaces shipped figures
_known: dict[Asked, Guess] = {}
REFUSED = Guess(np.inf, fits=True)


def shipped(rows: Sequence[Tried]) -> list[Guess]:
    """What the closed form says of each run."""
    return priced(rows, lambda row: Left())


def unmeasured(rows: Sequence[Tried]) -> list[Guess]:
    """The same without what the jobs measured of their network."""
    stripped = lambda cluster: {key: value for key, value in cluster.items() if key != "measured"}
    plain = [replace(row, run=row.run | {"cluster": stripped(row.run["cluster"])}) for row in rows]
    return shipped(plain)


def left_out(rows: Sequence[Tried]) -> list[Guess]:
    """The same with what was fitted without the source of each run, or its model."""

    fits = known_fits()

    def without(row: Tried) -> Left:
        own = fits.get(row.run["software"], {})
        left = own.get("without", {})
        constants = left.get(f"{row.source}, {row.model}", left.get(row.source, {}))
        return Left(constants, own.get("memory", {}).get(row.model))

    return priced(rows, without)


def size_left(rows: Sequence[Tried]) -> list[Guess]:
    """The same without runs of each one's size; without its source where there are not several."""

    fits = known_fits()

    def without(row: Tried) -> Left:
        own, size = fits.get(row.run["software"], {}), size_of(row)
        constants = own.get("without_size", {}).get(
            size, own.get("without", {}).get(row.source, {})
        )
        return Left(constants, own.get("memory", {}).get(size))

    return priced(rows, without)


@dataclass(frozen=True)
class Left:
    """Figures that replace the shipped ones."""

    constants: Mapping[str, float] = field(default_factory=dict)
    # Median and sigma of what steps need of memory, of those that do not gather and those that do.
    memory: Sequence[Sequence[float]] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The same as a key."""
        return tuple(self.constants.items()), tuple(map(tuple, self.memory or ()))


def priced(rows: Sequence[Tried], left: Callable[[Tried], Left]) -> list[Guess]:
    """Predictions of the closed form with other figures of each run's software.

    Runs that differ in what a plan chooses are priced side by side, as a plan prices them.
    """
    asked = [(json.dumps(row.run), left(row).key) for row in rows]
    alike: dict[Any, list[tuple[Asked, Run, MeshShape, Profile]]] = defaultdict(list)
    for (document, own), row in zip(asked, rows, strict=True):
        if (document, own) in _known:
            continue
        _known[document, own] = REFUSED
        run = read_run(row.run, row.id)
        try:
            where = target(run)
        except InputError:
            continue
        settings = replace(run.batch, microbatches=1), replace(run.sharding, zero_stage=3)
        common = replace(run, name="", mesh=None, cluster=None, batch=settings[0])
        common = replace(common, sharding=settings[1])
        traits = replace(traits_of(run.software), **dict(own[0]))
        profile = profile_for(where.cluster, run.cluster.measured if run.cluster else ())
        key = common, traits, own[1], where.cluster, id(profile), structure(run, where.mesh)
        alike[key].append(((document, own), run, where.mesh, profile))
    for (_, traits, memory, cluster, *_), members in alike.items():
        names, runs, meshes, profiles = zip(*members, strict=True)
        with patch.multiple(capacity, **_demands(memory)) if memory else nullcontext():
            found = _side_by_side(runs, meshes, traits, Prices(cluster, profiles[0]))
        _known.update(zip(names, found, strict=True))
    return [_known[each] for each in asked]


def _demands(memory: Sequence[Sequence[float]]) -> dict[str, Any]:
    needed, gathered = memory
    return {"NEEDED": Demand(*needed), "GATHERED": Demand(*gathered)}


def _side_by_side(
    runs: Sequence[Run], meshes: Sequence[MeshShape], traits: SoftwareTraits, prices: Prices
) -> list[Guess]:
    run, n, cluster = runs[0], len(runs), prices.cluster
    column = lambda figure: np.array([figure(each) for each in runs], float)
    grid = Grid(
        microbatches=column(lambda r: r.batch.microbatches),
        global_batch=column(lambda r: r.batch.global_batch),
        zero_stage=column(lambda r: r.sharding.zero_stage).astype(int),
        remat=column(lambda r: policies(r).index(r.remat)).astype(int),
    )
    flash = flash_rate(run, cluster.accelerator.compute_capability)
    program = analytic_program(run, side_by_side(meshes, [1] * n), grid, flash, traits)
    time = np.asarray(timeline_of(program, prices).total)
    place = PlanTarget(run, cluster, prices.profile, lambda seconds, devices: seconds)
    most, peak = capacity_of(cluster, program, run.software).bytes, memory_use(program).peak
    chance = 1.0 if most is None else fit_probability(program, peak, most, run.software)
    safe = np.less_equal(place.needed(program), place.capacity(program))
    figures = time, np.greater_equal(chance, LIKELY), place.expected(program, time), safe
    columns = (np.broadcast_to(figure, (n,)).tolist() for figure in figures)
    return [Guess(*row) for row in zip(*columns, strict=True)]


def calculon(rows: Iterable[Tried]) -> list[Guess]:
    """What Calculon printed for each."""
    found = _calculon()
    return [found.get((row.fabric or "", row.id), REFUSED) for row in rows]


@lru_cache(maxsize=1)
def _calculon() -> dict[tuple[str, str], Guess]:
    guesses = {}
    for row in rows_of(CALCULON):
        if row["seconds"]:
            memory = float(row["GiB"]) * BINARY["Gi"]
            guess = Guess(float(row["seconds"]), memory <= CALCULON_MEMORY)
            guesses[row["fabric"], row["id"]] = guess
    return guesses
