"""Measure this machine: matrix products, memory, attention, each collective on each axis.

calibrate(quick=True, progress=print)      # a Profile: raw points, and the fits with their errors

All devices work at once, because fake host devices share the processor's cores, and GPUs their
power and their links. What one fake device is measured to need is therefore what it gets.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import jax
from jax.sharding import Mesh

from scaling.calibrate.attention import attention_cases, backward_alone
from scaling.calibrate.collectives import collective_cases
from scaling.calibrate.dispatch import KEPT, call_benches
from scaling.calibrate.fit import (
    fit_attention,
    fit_collectives,
    fit_matmul,
    fit_memory,
    fit_vector,
)
from scaling.calibrate.fit_sum import fit_call, fit_program, fit_sum
from scaling.calibrate.kernels import matmul_cases, sizes_for
from scaling.calibrate.memory import memory_cases
from scaling.calibrate.steps import priced_alone, step_benches
from scaling.calibrate.timing import FULL, QUICK, Bench, Case, Point, measure
from scaling.meshes import catalog
from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape
from scaling.profiles.io import profile_of
from scaling.profiles.machine import busy, core_cache, machine, versions
from scaling.profiles.profile import (
    ANY,
    AttentionFit,
    Evidence,
    LinkFit,
    MatmulFit,
    MemoryFit,
    Profile,
    VectorFit,
)
from scaling.profiles.samples import (
    AttentionPoint,
    CallPoint,
    CollectivePoint,
    MatmulPoint,
    MemoryPoint,
    Points,
    StepPoint,
)
from scaling.program.ir import Program
from scaling.run import Run
from scaling.train.state import flash_platform

FUSED = ("copy", "transpose", "reduce")  # memory operations that the memory decides
Some = TypeVar(
    "Some", MatmulPoint, MemoryPoint, AttentionPoint, CollectivePoint, CallPoint, StepPoint
)


def calibrate(quick: bool, progress: Callable[[str], None]) -> Profile:
    """The profile of the devices present, all of them busy.

    Args:
        quick: fewer points and repeats: tens of seconds on a small machine, not minutes.
        progress: told in a few words what happens next.
    """
    if others := busy():
        progress(f"warning: {others}; figures measured now may be too slow")
    device = jax.devices()[0]
    on_host = device.platform == "cpu"
    ready: list[Bench] = []
    programs: list[tuple[Program, Run]] = []
    if on_host:
        progress("compiling whole steps")
        ready += call_benches(everywhere(), quick)
        for bench, program, run in step_benches(jax.device_count(), quick):
            ready.append(bench)
            programs.append((program, run))
    found = measure(all_cases(quick), QUICK if quick else FULL, progress, ready=ready)
    points = Points(
        matmul=_of(MatmulPoint, found),
        memory=_of(MemoryPoint, found),
        attention=tuple(backward_alone(found)),
        collective=_of(CollectivePoint, found),
        call=_of(CallPoint, found),
    )
    today = datetime.now(UTC).date().isoformat()
    profile = profile_of_points(points, machine(), today, versions(), overlap=not on_host)
    profile = replace(profile, links=links_of(device.device_kind))
    if on_host:
        fp32 = [fit for fit in profile.matmul if fit.dtype == "fp32"]
        profile = replace(profile, matmul=(*profile.matmul, *map(_other_formats, fp32)))
    return with_steps(profile, _of(StepPoint, found), programs)


def with_steps(
    profile: Profile, steps: Sequence[StepPoint], programs: Sequence[tuple[Program, Run]]
) -> Profile:
    """The profile with what whole steps say of kernels in programs."""
    if not steps:
        return profile
    cache = core_cache()
    priced = priced_alone(steps, programs, profile, cache)
    known = profile.memory.evidence
    evidence = Evidence(known.source, known.date, known.grade)
    fit = fit_program(priced, cache, evidence)
    return replace(profile, program=fit, points=replace(profile.points, step=tuple(priced)))


def all_cases(quick: bool) -> list[Case]:
    """Everything that is measured on the devices present."""
    mesh = everywhere()
    device = mesh.devices.flat[0]
    sizes = sizes_for(device.platform, quick)
    flash = flash_platform(device) == "gpu"
    return [
        *matmul_cases(mesh, sizes),
        *memory_cases(mesh, sizes.elements),
        *attention_cases(mesh, quick, flash),
        *collective_cases(mesh.size, quick, device.platform == "cpu"),
    ]


def everywhere() -> Mesh:
    """All devices along one axis."""
    return present_mesh(MeshShape(data=jax.device_count()))


def profile_of_points(
    points: Points, machine: str, date: str, versions: dict[str, str], overlap: bool = False
) -> Profile:
    """The profile that the points are fitted by.

    Args:
        points: raw measurements.
        machine, date, versions: where and when they were made.
        overlap: what a kernel does runs at once, as on a GPU, not one after another.
    """
    evidence = Evidence(f"scaling calibrate on {machine}", date, "calibrated")
    memory, vector = _units(points, evidence, overlap)
    return Profile(
        name="this machine",
        machine=machine,
        date=date,
        matmul=_matmul_fits(points, evidence),
        memory=memory,
        vector=vector,
        attention=_attention_fits(points, evidence),
        collectives=fit_collectives(points.collective, evidence) if points.collective else (),
        call=fit_call(points.call, memory, KEPT, evidence) if points.call else None,
        overlap=overlap,
        points=points,
        versions=versions,
    )


def links_of(device_kind: str) -> tuple[LinkFit, ...]:
    """What is known of the links of a GPU: only those inside this machine are measured here."""
    for name in catalog.accelerator_names():
        chip = catalog.accelerator(name)
        if chip.title == device_kind and chip.peaks:
            return profile_of(chip, "jax").links
    return ()


def _units(points: Points, evidence: Evidence, overlap: bool) -> tuple[MemoryFit, VectorFit]:
    """Memory and vector units: each from points that it decides, or together, where all add up."""
    if not overlap:
        return fit_sum(points.memory, evidence)
    memory = fit_memory([p for p in points.memory if p.kind in FUSED], evidence)
    return memory, fit_vector(points.memory, memory, evidence)


def _matmul_fits(points: Points, evidence: Evidence) -> tuple[MatmulFit, ...]:
    dtypes = dict.fromkeys(point.dtype for point in points.matmul)
    chosen = ([p for p in points.matmul if p.dtype == dtype] for dtype in dtypes)
    return tuple(fit_matmul(some, evidence) for some in chosen)


def _other_formats(fit: MatmulFit) -> MatmulFit:
    """XLA's CPU compiler computes the products of other formats in fp32, the one measured."""
    assumed = f"assumed as in {fit.dtype}: {fit.evidence.source}"
    return replace(fit, dtype=ANY, evidence=Evidence(assumed, fit.evidence.date, "datasheet"))


def _attention_fits(points: Points, evidence: Evidence) -> tuple[AttentionFit, ...]:
    directions = dict.fromkeys(point.direction for point in points.attention)
    chosen = ([p for p in points.attention if p.direction == way] for way in directions)
    return tuple(fit_attention(some, evidence) for some in chosen if len(some) > 1)


def _of(cls: type[Some], points: Sequence[Point]) -> tuple[Some, ...]:
    return tuple(point for point in points if isinstance(point, cls))
