"""Measures this machine: matrix products, memory, attention, each collective on each axis.

calibrate(quick=True, progress=print)      # a Profile: raw samples, and the fits with their errors

All devices work at once, because fake host devices share the processor's cores, and GPUs their
power and their links. What one fake device is measured to need is therefore what it gets.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import jax
from jax.sharding import Mesh

from scaling.calibration import cases, fit
from scaling.calibration.fit_host import fit_dispatch, fit_step, fit_sum
from scaling.calibration.sizes import sizes_for
from scaling.calibration.steps import KEPT, dispatch_benches, priced_alone, step_benches
from scaling.calibration.timing import FULL, QUICK, Bench, TimedCase, measure
from scaling.meshes import catalog
from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.attention_kernels.support import AMPERE
from scaling.profiles.io import load_warning, profile_of
from scaling.profiles.machine import MUCH, machine, versions
from scaling.profiles.profile import ANY, Evidence, LinkFit, Profile
from scaling.profiles.samples import (
    CollectiveSample,
    DispatchSample,
    MatmulSample,
    MemorySample,
    Sample,
    Samples,
    StepSample,
)
from scaling.program.ir import Program
from scaling.run import Run
from scaling.training.execution import compute_capability

FUSED = ("copy", "transpose", "reduce")  # memory operations that are bound by the memory
OneKind = TypeVar("OneKind")


def calibrate(quick: bool, progress: Callable[[str], None]) -> Profile:
    """The profile of the devices present, measured with all of them at work."""
    device = jax.devices()[0]
    on_host = device.platform == "cpu"
    ready: list[Bench] = []
    steps: list[tuple[Bench, Program, Run]] = []
    if on_host:
        progress("compiling whole steps")
        ready += dispatch_benches(everywhere(), quick)
        steps += step_benches(jax.device_count(), quick)
        ready += [bench for bench, _, _ in steps]
    measured, load = measure(all_cases(quick), QUICK if quick else FULL, progress, ready=ready)
    if load > MUCH:
        progress(f"warning: {load_warning(load)}")
    samples = Samples(
        matmul=_of(MatmulSample, measured),
        memory=_of(MemorySample, measured),
        attention=tuple(cases.backward_alone(measured)),
        collective=_of(CollectiveSample, measured),
        dispatch=_of(DispatchSample, measured),
    )
    today = datetime.now(UTC).date().isoformat()
    profile = replace(
        profile_of_samples(samples, machine(), today, versions(), overlap=not on_host),
        links=shipped_links(device.device_kind),
        other_load=load if load > MUCH else 0.0,
    )
    programs = [(program, run) for _, program, run in steps]
    return with_host_fits(profile, _of(StepSample, measured), programs) if on_host else profile


def with_host_fits(
    profile: Profile, steps: Sequence[StepSample], programs: Sequence[tuple[Program, Run]]
) -> Profile:
    """The profile of a CPU with other formats, and the slowdown of kernels within whole steps."""
    # XLA's CPU compiler computes the products of other formats in fp32, the one measured.
    assumed = lambda of: Evidence(f"assumed as in fp32: {of.source}", of.date, "datasheet")
    fp32 = [products for products in profile.matmul if products.dtype == "fp32"]
    others = (replace(p, dtype=ANY, evidence=assumed(p.evidence)) for p in fp32)
    profile = replace(profile, matmul=(*profile.matmul, *others))
    if not steps:
        return profile
    priced = priced_alone(steps, programs, profile)
    memory = profile.memory.evidence
    slowdown = fit_step(priced, Evidence(memory.source, memory.date, memory.grade))
    return replace(profile, step=slowdown, samples=replace(profile.samples, step=tuple(priced)))


def all_cases(quick: bool) -> list[TimedCase]:
    """All cases for the devices present."""
    mesh = everywhere()
    device = mesh.devices.flat[0]
    sizes = sizes_for(device.platform, quick)
    flash = compute_capability(device) >= AMPERE
    return [
        *cases.matmul_cases(mesh, sizes),
        *cases.memory_cases(mesh, sizes.elements),
        *cases.attention_cases(mesh, sizes, flash),
        *cases.collective_cases(mesh.size, quick, sizes.messages),
    ]


def everywhere() -> Mesh:
    """All devices along one axis."""
    return present_mesh(MeshShape(data=jax.device_count()))


def profile_of_samples(
    samples: Samples, machine: str, date: str, versions: dict[str, str], overlap: bool = False
) -> Profile:
    """The profile fitted to the samples.

    `overlap`: what a kernel does runs at once, as on a GPU, not one after another.
    """
    evidence = Evidence(f"scaling calibrate on {machine}", date, "calibrated")
    if overlap:
        memory = fit.fit_memory([p for p in samples.memory if p.kind in FUSED], evidence)
        vector = fit.fit_vector(samples.memory, memory, evidence)
    else:
        memory, vector = fit_sum(samples.memory, evidence)
    products = fit.grouped(samples.matmul, "dtype")
    attention = [g for g in fit.grouped(samples.attention, "direction") if len(g) > 1]
    dispatch = samples.dispatch
    return Profile(
        name="this machine",
        machine=machine,
        date=date,
        matmul=tuple(fit.fit_matmul(group, evidence) for group in products),
        memory=memory,
        vector=vector,
        attention=tuple(
            replace(found, softmax=found.softmax * vector.transcendentals)
            for found in (fit.fit_attention(group, evidence) for group in attention)
        ),
        collectives=fit.fit_collectives(samples.collective, evidence),
        dispatch=fit_dispatch(dispatch, memory, KEPT, evidence) if dispatch else None,
        overlap=overlap,
        samples=samples,
        versions=versions,
    )


def shipped_links(device_kind: str) -> tuple[LinkFit, ...]:
    """Shipped link fits of a GPU: the links of other machines cannot be measured here."""
    for chip in map(catalog.accelerator, catalog.accelerator_names()):
        if chip.title == device_kind and chip.peaks:
            return profile_of(chip).links
    return ()


def _of(cls: type[OneKind], samples: Sequence[Sample]) -> tuple[OneKind, ...]:
    return tuple(sample for sample in samples if isinstance(sample, cls))
