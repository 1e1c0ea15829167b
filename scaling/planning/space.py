"""The configurations of a run on so many devices: every mesh, with every split of its batch.

    mesh             each way to write the number of devices as a product over the axes
    microbatches     each divisor of the sequences of one batch shard
    zero stage       where weights are sharded: 1 and 3 for our trainer, 1 to 3 for other software
    remat            none, selective, full, and what the run names
    its layers       of other software, where that is asked for: how many a stage computes again

What is left as the run says: the model, the global batch, formats, the pipeline's schedule. Axes
that can do nothing for a model have size 1: `expert` without experts.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from scaling.analytic.software import traits_of
from scaling.analytic.step import FULL, REMATS, Grid, policies, structure
from scaling.meshes.rules import divisors
from scaling.meshes.shape import AXES, MeshBatch, MeshShape, side_by_side
from scaling.models.accounting.remat import AUTO
from scaling.planning.constraints import PARTIAL, Constraint, allowed
from scaling.planning.refusals import Refusals
from scaling.program.ir import Number
from scaling.run import OURS, Run
from scaling.run.parallelism.rules import rows_of_shard, weight_shards

TRAINED_ZERO, ZERO = (1, 3), (1, 2, 3)  # stages of sharded weights; stage 0 is the axis `data`
# Of a stage's layers, and all but 1, 2, 4 up to an eighth: chosen by this project.
EIGHTHS = np.arange(1, 8) / 8
FALLS = (0.0, 0.5, 1.0)  # of them that the last stage leaves out, where each stage has its number
MOST = 4096  # configurations side by side: more take no less time each (2 cores, 1,024 devices)
AXES_OF_DENSE = tuple(axis for axis in AXES if axis != "expert")


@dataclass(frozen=True)
class Choices:
    """One mesh with all splits of the batch, ZeRO stages and remats; why it cannot run at all."""

    mesh: MeshShape
    grid: Grid  # arrays [configurations]
    refusal: str = ""

    @property
    def count(self) -> int:
        """Number of configurations."""
        return len(np.asarray(self.grid.microbatches))

    def only(self, chosen: np.ndarray) -> "Choices":
        """The configurations that are True in bool [configurations]."""
        return replace(self, grid=Grid(*(row[chosen] for row in _rows(self.grid))))

    def values(self, run: Run, key: str) -> set[Any]:
        """The values of a setting that a plan chooses, by its dotted key."""
        if key == "remat":
            return {str(policies(run)[i]) for i in np.asarray(self.grid.remat)}
        if key == PARTIAL:
            return {int(n) for n in np.atleast_1d(self.grid.again) if np.isfinite(n)}
        table, _, name = key.partition(".")
        if table == "mesh":
            return {getattr(self.mesh, name)}
        return {int(value) for value in np.asarray(getattr(self.grid, name))}

    def run(self, run: Run, index: int) -> Run:
        """The run of one configuration."""
        *own, again, fewer = (row[index] for row in _rows(self.grid))
        microbatches, _, zero_stage, remat = map(int, own)
        layers = int(again) if np.isfinite(again) else None
        pipeline = replace(run.pipeline, remat_layers=layers, remat_fewer=float(fewer))
        policy = policies(run)[remat]
        return replace(
            run,
            pipeline=pipeline,
            mesh=self.mesh,
            device_order=self.mesh.device_order,
            batch=replace(run.batch, microbatches=microbatches),
            sharding=replace(run.sharding, zero_stage=zero_stage),
            remat=policy,
            recompute=run.recompute if policy == "selective" else ("core_attn",),
        )


@dataclass(frozen=True)
class ChoicesBatch:
    """Choices of several meshes of one structure, side by side in arrays."""

    every: tuple[Choices, ...]

    @cached_property
    def counts(self) -> list[int]:
        """Configurations of each mesh."""
        return [choices.count for choices in self.every]

    @property
    def count(self) -> int:
        """Number of configurations."""
        return sum(self.counts)

    @cached_property
    def mesh(self) -> MeshBatch:
        """The mesh of each configuration."""
        return side_by_side([choices.mesh for choices in self.every], self.counts)

    @cached_property
    def grid(self) -> Grid:
        """The settings of each configuration."""
        return Grid(*map(np.concatenate, zip(*(_rows(c.grid) for c in self.every), strict=True)))

    def run(self, run: Run, index: int) -> Run:
        """The run of one configuration."""
        for choices in self.every:
            if index < choices.count:
                return choices.run(run, index)
            index -= choices.count
        raise IndexError(index)

    def parts(self, figures: Number) -> list[np.ndarray]:
        """Figures [configurations], or one of all, as [configurations of a mesh] of each mesh."""
        full = np.broadcast_to(np.asarray(figures, float), (self.count,))
        return np.split(full, np.cumsum(self.counts)[:-1])


def _rows(grid: Grid) -> list[np.ndarray]:
    """The settings of a grid, each [configurations]."""
    figures = [np.asarray(getattr(grid, field.name)) for field in fields(Grid)]
    shape = figures[0].shape
    return [row if row.shape == shape else np.broadcast_to(row, shape) for row in figures]


def hashable(run: Run) -> Run:
    """The run without its tables, of data and of a cluster, which no step depends on."""
    return replace(run, cluster=None, train=replace(run.train, data=""))


def described(run: Run, choices: Choices | ChoicesBatch) -> Run:
    """The run that describes all of some choices, with the policies that their grid counts."""
    return replace(choices.run(run, 0), remat=run.remat)


def batched(run: Run, every: Iterable[Choices]) -> Iterator[ChoicesBatch]:
    """The choices with those of one structure side by side, not too many at a time."""
    alike: dict[tuple[Any, ...], list[Choices]] = defaultdict(list)
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for choices in every:
        key = structure(run, choices.mesh)
        if counts[key] + choices.count > MOST and alike[key]:
            yield ChoicesBatch(tuple(alike.pop(key)))
            counts[key] = 0
        alike[key].append(choices)
        counts[key] += choices.count
    yield from (ChoicesBatch(tuple(members)) for members in alike.values())


def all_choices(
    run: Run,
    devices: int,
    constraints: Sequence[Constraint] = (),
    partial: bool = False,
    covers: Callable[[MeshShape], bool] = lambda mesh: True,
) -> Iterator[Choices]:
    """Every mesh of so many devices with its settings; with the run's mesh, that one alone.

    Args:
        run: with or without a mesh.
        devices: of each mesh.
        constraints: that leave out meshes and settings.
        partial: stages compute some of their layers again, not all.
        covers: False for further meshes that are left out.
    """
    alike = replace(hashable(run), device_order=AXES)
    every = _in_order(alike, devices, tuple(constraints), partial)
    for each, mesh in zip(every, meshes(run, devices, constraints), strict=True):
        if each.count and covers(mesh):
            yield replace(each, mesh=mesh)


@lru_cache(maxsize=8)
def _in_order(
    run: Run, devices: int, constraints: tuple[Constraint, ...], partial: bool
) -> tuple[Choices, ...]:
    """Those of the usual device order: in another, meshes have the same settings and refusals."""
    refusals = Refusals(run), Refusals(replace(run, remat=REMATS[0]))
    every = meshes(run, devices, constraints)
    return tuple(choices(run, mesh, refusals, constraints, partial) for mesh in every)


def meshes(run: Run, devices: int, constraints: Sequence[Constraint] = ()) -> tuple[MeshShape, ...]:
    """Every way to share the devices out over the axes, tensor innermost growing last."""
    if run.mesh:
        sizes = run.mesh.sizes.items()
        every_is = all(allowed(constraints, f"mesh.{axis}", [n]) for axis, n in sizes)
        return (run.mesh,) if every_is else ()
    every = AXES if run.model.moe else AXES_OF_DENSE
    of_axis = {a: divisors(devices) if a in every else [1] for a in AXES}
    found = (frozenset(allowed(constraints, f"mesh.{a}", of_axis[a])) for a in AXES)
    return _meshes(devices, tuple(found), run.device_order)


@lru_cache(maxsize=8)  # the orders of one number of devices
def _meshes(
    devices: int, sizes: tuple[frozenset[int], ...], order: tuple[str, ...]
) -> tuple[MeshShape, ...]:
    every = (zip(AXES, each, strict=True) for each in _products(devices, sizes))
    return tuple(MeshShape(**dict(each), device_order=order) for each in every)


def _products(number: int, parts: Sequence[Container[int]]) -> Iterator[tuple[int, ...]]:
    """Every tuple of positive integers, one of each part, whose product is `number`."""
    first, *others = parts
    for size in reversed(divisors(number)) if others else [number]:
        if size in first:
            rests = _products(number // size, others) if others else [()]
            yield from ((size, *rest) for rest in rests)


def choices(
    run: Run,
    mesh: MeshShape,
    refusals: tuple[Refusals, Refusals] | None = None,
    constraints: Sequence[Constraint] = (),
    partial: bool = False,
) -> Choices:
    """The settings of one mesh; a mesh that cannot run has them for the count only.

    `refusals` are of the run, and of it with a remat policy of any software. Where weights are not
    sharded there is no ZeRO stage to constrain.
    """
    own, plain = refusals or (Refusals(run), Refusals(replace(run, remat=REMATS[0])))
    stages = [3]
    if weight_shards(run, mesh) > 1:
        known = TRAINED_ZERO if run.software == OURS else ZERO
        stages = allowed(constraints, "sharding.zero_stage", known)
    both_ends = 2 * mesh.stage * (run.pipeline.schedule == "dualpipe" and mesh.stage > 1)
    turns = both_ends or (mesh.stage if run.pipeline.virtual_stages > 1 else 1)
    counts = _counts(rows_of_shard(run, mesh), turns)
    # Those of any software; and the run's own, where it can run on this mesh.
    every_remat = list(range(len(policies(run))))
    if run.remat not in (*REMATS, AUTO) and own.of(mesh, counts[0]):
        every_remat.remove(policies(run).index(run.remat))
    refusal = plain.of(mesh, counts[0])
    if constraints:
        counts = tuple(allowed(constraints, "batch.microbatches", counts))
        names = [str(policy) for policy in policies(run)]
        every_remat = [i for i in every_remat if allowed(constraints, "remat", [names[i]])]
    stated = [(run.pipeline.remat_layers, run.pipeline.remat_fewer)]
    some = _again(run, mesh, constraints) if partial else stated
    every: dict[int, Sequence[tuple[int | None, float]]] = {
        i: some if i == FULL else [(None, 0.0)] for i in every_remat if i == FULL or not partial
    }
    remats = (
        (i, np.inf if k is None else k, fewer)
        for i, pairs in every.items()
        for k, fewer in pairs
        if allowed(constraints, PARTIAL, [k])
    )
    grid = _grid(run.batch.global_batch, counts, tuple(stages), tuple(remats))
    return Choices(mesh, grid, refusal)


def _again(
    run: Run, mesh: MeshShape, constraints: Sequence[Constraint]
) -> list[tuple[int | None, float]]:
    """Layers of the first stage that are computed again, and how many fewer of each next one."""
    layers = -(-run.model.n_layers // (mesh.stage * run.pipeline.virtual_stages))
    is_fixed = any(constraint.key == PARTIAL for constraint in constraints)
    few = (layers - (1 << i) for i in range(layers.bit_length()) if 8 << i < layers)
    parts = np.ceil(layers * EIGHTHS).astype(int)
    some = range(1, layers) if is_fixed else sorted({*few, *parts.tolist()})
    later = mesh.stage - 1 if traits_of(run.software).recomputes == "each" else 0
    falls = FALLS if later else FALLS[:1]
    return [(int(k), fall * int(k) / max(later, 1)) for k in some if k < layers for fall in falls]


@lru_cache(maxsize=1024)
def _counts(rows: int, turns: int) -> tuple[int, ...]:
    """Microbatches of so many rows: of virtual stages whole turns, and of DualPipe two from either
    end, where there are some."""
    every = divisors(rows)
    return tuple(n for n in every if n % turns == 0) or tuple(every)


@lru_cache(maxsize=1024)
def _grid(
    batch: int,
    counts: tuple[int, ...],
    stages: tuple[int, ...],
    remats: tuple[tuple[int, float, float], ...],
) -> Grid:
    """Every combination; one grid of all meshes that have the same."""
    every = [(n, batch, zero, *remat) for n, zero, remat in product(counts, stages, remats)]
    rows = np.array(every, float).reshape(-1, len(fields(Grid))).T
    return Grid(rows[0], rows[1], *rows[2:4].astype(np.int64), *rows[4:])
