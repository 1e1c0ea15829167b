"""Changes that make a run faster, from its prediction: only what a second pricing has confirmed.

candidates   a mesh, microbatches, ZeRO stage or remat that may help against what binds the step; of
             the remat policies the fastest that fits, by closed forms, which are priced at once
ranked       by their closed forms, so that few are compiled
confirmed    priced by `try_run`: it fits, and takes at least 2 % less time (or fits at last)
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from scaling.meshes.errors import InputError
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.meshes.units import format_memory, format_time
from scaling.models.accounting.remat import (
    LADDER,
    OFFLOADED,
    POLICIES,
    Remat,
    SavedTensors,
    tensor_names,
)
from scaling.run import OURS, Run
from scaling.run.parallelism.rules import rows_of_shard, weight_shards, zero_stage
from scaling.simulate.prediction import CROWDED, MemoryParts, Prediction

T = TypeVar("T")
TryRun = Callable[[Run], Prediction | None]  # None: cannot be priced at once
Estimate = Callable[[Run], tuple[float, float] | None]  # seconds of a step, bytes of its peak


@dataclass(frozen=True)
class ChangedRun:
    """A changed run, and what changes it."""

    run: Run
    set: Mapping[str, object] = field(default_factory=dict)  # values by dotted key of run.json
    mesh: MeshShape | None = None
    note: str = ""


@dataclass(frozen=True)
class Advice(ChangedRun):
    """A change that a second pricing has confirmed."""

    effect: str = ""  # `5.9 s a step instead of 6.6 s, 52.2 GB`


MUCH = 1 / 4  # share of the step that is worth acting on, chosen by this project
GAIN = 0.02  # share of the step time; smaller differences are less than the model's own error
MOST_TRIES = 2  # each costs a compile; the first that is confirmed is said
CAPACITY = 1.25  # rows of an expert's buffer over the mean: arXiv 2101.03961, table 1


def advice(
    run: Run | None, prediction: Prediction, try_run: TryRun | None, closed: Estimate | None = None
) -> list[Advice]:
    """The change that helps most by its closed form, if a second pricing confirms one.

    Args:
        run: whose step it is, with its mesh; None (a step that is not ours): no advice.
        try_run: prices a changed run as the prediction was; None, or a result of None: nothing
            is said.
        closed: the step time and the peak of a changed run by a closed form, which rank the
            changes; None: they are tried as they come, and no policies are compared.
    """
    if run is None or run.mesh is None or try_run is None:
        return []
    best_remat = _best_remat(run, prediction, closed) if closed else None
    candidates = list(_candidates(run, run.mesh, prediction, best_remat))
    if closed:
        candidates = _ranked(candidates, run, prediction, closed)
    for candidate in candidates[:MOST_TRIES]:
        found = _tried(candidate.run, try_run)
        if found is not None and (effect := _effect(found, prediction)):
            return [Advice(**vars(candidate), effect=effect)]
    return []


def _ranked(
    candidates: list[ChangedRun], run: Run, prediction: Prediction, closed: Estimate
) -> list[ChangedRun]:
    """The candidates that help by their closed forms, the fastest first."""
    here = _tried(run, closed)
    if here is None:
        return candidates
    ratio = 1.0 if prediction.is_near_limit else float(prediction.step_time) / (here[0] or 1.0)
    more = float(prediction.memory.peak) - here[1]
    room = prediction.memory.capacity or math.inf
    ranked = []
    for candidate in candidates:
        found = _tried(candidate.run, closed)
        if found is None:
            continue
        fits = found[1] + more <= room
        time = ratio * found[0]
        if prediction.memory.fits is False or (fits and time < prediction.step_time):
            ranked.append((not fits, time, candidate))
    return [candidate for *_, candidate in sorted(ranked, key=lambda each: each[:2])]


def _best_remat(run: Run, prediction: Prediction, closed: Estimate) -> ChangedRun | None:
    """The fastest remat policy by its closed form among those that fit, if it is another one.

    Memory is that of the prediction plus the difference of the closed forms. Of a crowded step it
    is the fastest that leaves XLA the room to hide collectives, which closed forms take for given.
    """
    here = _tried(run, closed)
    if here is None or prediction.memory.capacity is None:
        return None
    every = (*LADDER, *OFFLOADED) if run.software == OURS else POLICIES
    policies = [_of_model(remat, run) for remat in every]
    pairs = ((r, _tried(replace(run, remat=r), closed)) for r in policies if r != run.remat)
    more, room = float(prediction.memory.peak) - here[1], prediction.memory.capacity
    room *= CROWDED if prediction.is_crowded else 1
    fitting = [(r, p) for r, p in pairs if p is not None and p[1] + more <= room]
    remat, best = min(fitting, key=lambda pair: pair[1][0], default=(run.remat, here))
    faster = best[0] < (1 - GAIN) * here[0]
    faster = faster or prediction.is_crowded
    if remat == run.remat or (prediction.memory.fits and not faster):
        return None
    return _remat(run, remat)


def _of_model(remat: Remat, run: Run) -> Remat:
    """A policy without the tensors that the run's model does not have."""
    if not isinstance(remat, SavedTensors):
        return remat
    there = tensor_names(run.model)
    own = lambda names: tuple(name for name in names if name in there)
    return SavedTensors(own(remat.save), own(remat.offload))


def _candidates(
    run: Run, mesh: MeshShape, prediction: Prediction, remat: ChangedRun | None
) -> Iterator[ChangedRun]:
    """Changes in the order in which they are worth a try."""
    moe = run.model.moe
    if moe is not None and moe.capacity_factor is None and moe.device_capacity_factor is None:
        # the buffers of dropless experts have room for every token on each device
        changed = replace(run, model=replace(run.model, moe=replace(moe, capacity_factor=CAPACITY)))
        settings = {"model.moe.capacity_factor": CAPACITY}
        yield ChangedRun(changed, settings, note=" (drops tokens of full experts)")
    if prediction.memory.fits is False:
        yield from _less_memory(run, mesh, prediction.memory, remat)
        return
    # 1: else weights are gathered in every iteration, the tables on every stage
    yield from _zero_stage(run, mesh, 3 if prediction.is_near_limit else 1)
    total = float(prediction.step_time) or 1.0
    if float(prediction.time.bubble) / total > MUCH:
        yield from _microbatches(run, mesh, 2.0)
    if float(prediction.time.exposed_communication) / total > MUCH:
        yield from _less_waiting(run, mesh, prediction)
    if remat is not None:
        yield remat


def _less_memory(
    run: Run, mesh: MeshShape, memory: MemoryParts, remat: ChangedRun | None
) -> Iterator[ChangedRun]:
    """More microbatches and more remat where activations are too large, else more shards."""
    state = float(memory.parameters + memory.gradients + memory.optimizer_state)
    room = float(memory.capacity or 0.0) - state - float(memory.communication)
    if room <= 0:
        yield from _moved(run, mesh, "data", "fsdp", mesh.data)
        return
    passing = float(memory.activations + memory.temporary)
    more = list(_microbatches(run, mesh, passing / room))
    yield from more
    yield from _zero_stage(run, mesh, 3)
    if remat is not None:
        yield remat
    elif run.remat != "full":
        yield _remat(run, "full")
        for each in more:
            yield ChangedRun(replace(each.run, remat="full"), {**each.set, "remat": "full"})


def _less_waiting(run: Run, mesh: MeshShape, prediction: Prediction) -> Iterator[ChangedRun]:
    """Against the axis whose collectives the step waits for longest."""
    line = max(prediction.collectives, key=lambda line: float(line.exposed))
    axes = line.axis.split("+")
    if "tensor" in axes:
        yield from _moved(run, mesh, "tensor", "fsdp", 2)
    if "fsdp" in axes:
        if run.batch.microbatches > 1 and mesh.stage == 1:
            yield from _microbatches(run, mesh, 0.5)
        yield from _moved(run, mesh, "fsdp", "data", 2)


def _zero_stage(run: Run, mesh: MeshShape, stage: int) -> Iterator[ChangedRun]:
    """Another ZeRO stage of a pipeline: 1 for less traffic, 3 for less memory."""
    if mesh.stage > 1 and weight_shards(run, mesh) > 1 and zero_stage(run, mesh) != stage:
        sharding = replace(run.sharding, zero_stage=stage)
        yield ChangedRun(replace(run, sharding=sharding), {"sharding.zero_stage": stage})


def _microbatches(run: Run, mesh: MeshShape, times: float) -> Iterator[ChangedRun]:
    """At least `times` as many microbatches; none if a device has too few sequences."""
    least = math.ceil(run.batch.microbatches * times)
    count = next((n for n in divisors(rows_of_shard(run, mesh)) if n >= least), None)
    if count is not None and count != run.batch.microbatches:
        batch = replace(run.batch, microbatches=count)
        yield ChangedRun(replace(run, batch=batch), {"batch.microbatches": count})


def _moved(
    run: Run, mesh: MeshShape, source: str, target: str, factor: int
) -> Iterator[ChangedRun]:
    """The mesh with a factor of one axis given to another, which keeps the devices."""
    size = getattr(mesh, source)
    if factor > 1 and size % factor == 0:
        sizes = {source: size // factor, target: getattr(mesh, target) * factor}
        changed = replace(mesh, **sizes)
        yield ChangedRun(replace(run, mesh=changed), mesh=changed)


def _remat(run: Run, remat: Remat) -> ChangedRun:
    return ChangedRun(replace(run, remat=remat), {"remat": str(remat)})


def _tried(run: Run, try_run: Callable[[Run], T | None]) -> T | None:
    """What is found for a changed run; None where the run is not possible."""
    try:
        return try_run(run)
    except InputError:
        return None


def _effect(found: Prediction, before: Prediction) -> str:
    """What a change brings; "" if it is no better."""
    if found.memory.fits is False:
        return ""
    memory, time = format_memory(found.memory.peak), format_time(found.step_time)
    if before.memory.fits is False:
        return f"fits in {memory}, {time} a step"
    if not float(found.step_time) < (1 - GAIN) * float(before.step_time):
        return ""
    return f"{time} a step instead of {format_time(before.step_time)}, {memory}"
