"""Differences of the compiled program from what its parallelism needs, and their cost.

    bytes per step over (axes, kind)     against the table of `analytic.table`, within 1 %
    groups of devices of no mesh axes    never expected
    FLOPs of matrix products             against the model's, with what its remat computes again

An entry of the table and a program differ where they do so in calls of 64 KiB and more, and also in
all calls together: the compiler is free to join calls and to part them.

XLA's compiler for CPUs keeps an all-reduce where the one for GPUs makes a reduce-scatter, sums over
`tensor` more often, and has no bf16. There, the table is that of a computation in float32, sums of
both kinds are compared as one, and those over `tensor` not at all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from scaling.analytic.flops import buffer_flops, flops_in_ticks
from scaling.analytic.optimizer import muon_flops
from scaling.analytic.step import step_sizes
from scaling.analytic.table import SMALLEST, expected_bytes
from scaling.collectives.cost import collective_time
from scaling.comparing.discrepancy import (
    NO_MESH_AXES,
    NOT_EXPLAINED,
    PRODUCTS,
    REMAT_SUFFIX,
    REMATERIALISED,
    ROUNDING,
    Calls,
    Discrepancy,
    cause_of,
)
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import scores_share, train_flops
from scaling.models.accounting.matrices import compressing_matrices
from scaling.models.accounting.remat import keeps
from scaling.program.ir import COLLECTIVE_KINDS, Collective, CollectiveKind
from scaling.program.ops import BACKWARD_PRODUCTS, FORWARD_PRODUCTS
from scaling.run import Run
from scaling.run.parallelism.rules import is_sequence_parallel, rules_for
from scaling.run.parallelism.sequence import attended_model
from scaling.simulate.step import Priced, device_groups, running_collectives, running_kernels

SUMS: tuple[CollectiveKind, ...] = ("all-reduce", "reduce-scatter")
NOTICED = 0.01  # share of the step time from which on a discrepancy is a warning

Key = tuple[str, str]  # axes joined by +, kind


def audit(
    priced: Priced, run: Run, shape: MeshShape, smallest: float = SMALLEST
) -> list[Discrepancy]:
    """All discrepancies of the compiled program of `run`, the most expensive first.

    Calls below `smallest` bytes are compared only together with all others.

    Raises:
        InputError: a run that the trainer cannot run.
    """
    found = [
        *_communication(priced, run, shape, smallest),
        *_unnamed(priced),
        *_products(priced, run, shape),
    ]
    return sorted(found, key=lambda discrepancy: -abs(discrepancy.seconds))


def noticeable(discrepancies: Iterable[Discrepancy], priced: Priced) -> list[Discrepancy]:
    """Discrepancies of at least `NOTICED` of the step time; `--explain` prints the rest too."""
    least = NOTICED * float(np.max(priced.timeline.total))
    return [d for d in discrepancies if abs(d.seconds) >= least]


def _communication(
    priced: Priced, run: Run, shape: MeshShape, smallest: float
) -> Iterator[Discrepancy]:
    """Entries of the table that differ, and collectives that are not in it."""
    on_host = bool(priced.cluster.virtual_devices)
    if on_host:
        run = replace(run, precision=replace(run.precision, compute="fp32"))
    large, every = defaultdict[Key, float](float), defaultdict[Key, float](float)
    for table, least in ((large, smallest), (every, 0)):
        for key, bytes_ in expected_bytes(run, shape, least).items():
            if (name := _comparable(key, on_host)) is not None:
                table[name] += bytes_
    calls: dict[Key, Calls] = {}  # without those of groups of one
    for collective, n in running_collectives(priced):
        name = _comparable(("+".join(collective.axes), collective.kind), on_host)
        if collective.axes and name is not None:
            calls.setdefault(name, []).append((collective, float(np.max(n))))
    for key in dict.fromkeys([*large, *calls]):
        of_key = calls.get(key, [])
        big = [(c, n) for c, n in of_key if _bytes([(c, 1)]) >= smallest]
        expected, found = large.get(key, 0.0), _bytes(big)
        if _differ(expected, found) and _differ(every.get(key, 0.0), _bytes(of_key)):
            seconds = _seconds(key, expected, found, big, priced)
            d = Discrepancy(*key, expected, found, *_evidence(big), NOT_EXPLAINED, seconds)
            yield replace(d, reason=cause_of(d, big, run, shape))


def _unnamed(priced: Priced) -> Iterator[Discrepancy]:
    """Collectives among devices that no set of mesh axes groups like that."""
    every = running_collectives(priced)
    for kind in COLLECTIVE_KINDS:
        calls = [(c, float(np.max(n))) for c, n in every if not c.axes and c.kind == kind]
        if calls:
            seconds = _sum(priced, (c.name for c, _ in calls))
            yield Discrepancy(
                "", kind, 0.0, _bytes(calls), *_evidence(calls), NO_MESH_AXES, seconds
            )


def _products(priced: Priced, run: Run, shape: MeshShape) -> Iterator[Discrepancy]:
    """More (or fewer) FLOPs of matrix products than the model and its remat need."""
    all_ = [(k, float(np.max(n))) for k, n in running_kernels(priced)]
    found = float(sum(np.max(k.flops) * n for k, n in all_))
    flash = any(k.kind == "attention" for k, _ in all_)
    needed = _expected_flops(run, shape, flash)
    if not found or not _differ(needed, found):
        return
    again = [(k, n) for k, n in all_ if REMAT_SUFFIX in k.name]
    names, calls = tuple(k.name for k, _ in again), sum(n for _, n in again)
    reason = REMATERIALISED if again and found > needed else NOT_EXPLAINED
    for words, flops in buffer_flops(run, shape).items():
        reason = words if not _differ(needed + flops, found) else reason
    products = _sum(priced, (k.name for k, _ in all_ if np.any(k.flops)))
    seconds = products * (1 - needed / found)  # of these FLOPs: not of all that is computed again
    yield Discrepancy("", PRODUCTS, needed, found, calls, names, reason, seconds)


def _expected_flops(run: Run, shape: MeshShape, flash: bool) -> float:
    """FLOPs of matrix products on one device: of every score, whatever the mask, as they execute
    (over `context`, those of chunks that meet).

    A head that `tensor` neither cuts nor sees other tokens of runs on each of its devices, and so
    do the router and the matrices that make latents where a stream's sequence is whole. Flash
    attention, and any over `context`, runs forward again only where the whole layer does; its
    backward pass has five products for the two of its forward pass (arXiv 2205.14135,
    algorithm 4). A pipeline has idle ticks too. Muon multiplies after the backward pass.
    """
    run = replace(run, model=attended_model(run))
    flops = train_flops(run.model, run.batch.global_batch, run.batch.seq_len, run.remat)
    groups = dict(flops.groups)
    if not is_sequence_parallel(run, shape):
        groups["head"] *= 1 if rules_for(run, shape).axes("vocab") else shape.tensor
        groups |= {name: groups[name] * shape.tensor for name in groups if name == "router"}
        latents = sum(flops.components[name] for name in compressing_matrices(run.model))
        groups["projections"] += latents * (shape.tensor - 1)
    if flash or shape.context > 1:
        none = train_flops(run.model, run.batch.global_batch, run.batch.seq_len, "none")
        forward = none.groups["attention"] / 3
        backward = sum(BACKWARD_PRODUCTS) / sum(FORWARD_PRODUCTS)
        groups["attention"] = forward * (1 + (not keeps(run.remat, "attention")) + backward)
    groups = flops_in_ticks(run, shape, groups)
    groups["attention"] *= scores_share(run.model, run.batch.seq_len, shape.context)
    return float(sum(groups.values())) / shape.devices + float(muon_flops(step_sizes(run, shape)))


def _seconds(key: Key, expected: float, found: float, calls: Calls, priced: Priced) -> float:
    """Seconds of the difference: its share of the calls' time, or the time of missing calls."""
    if found:
        return _sum(priced, (c.name for c, _ in calls)) * (found - expected) / found
    kind = next((kind for kind in COLLECTIVE_KINDS if kind == key[1]), SUMS[0])
    missing = Collective("", kind=kind, axes=tuple(key[0].split("+")))
    groups = device_groups(missing, priced.program, priced.cluster)
    cost = collective_time(kind, expected, groups, priced.cluster, priced.profile)
    return -float(np.max(cost.time))


def _comparable(key: Key, on_host: bool) -> Key | None:
    """The key under which collectives are compared; None: the CPU's compiler cannot be."""
    axes, kind = key
    if not on_host or kind not in SUMS:
        return key
    return None if "tensor" in axes.split("+") else (axes, "sum")


def _differ(expected: float, found: float) -> bool:
    return abs(found - expected) > ROUNDING * expected


def _bytes(calls: Iterable[tuple[Collective, float]]) -> float:
    return float(sum(np.max(c.bytes) * n for c, n in calls))


def _evidence(calls: Calls) -> tuple[float, tuple[str, ...]]:
    """Calls per step, and their lines."""
    return sum(n for _, n in calls), tuple(dict.fromkeys(c.line for c, _ in calls))


def _sum(priced: Priced, names: Iterable[str]) -> float:
    """Seconds per step of these instructions."""
    return float(sum(np.max(priced.timeline.by_name.get(name, 0.0)) for name in names))
