"""The best meshes, options and settings of any jitted step, each compiled: `plan_step`."""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling.api.calibrate import load_profile
from scaling.api.elsewhere import Outcome, predict_elsewhere, stop_if_elsewhere
from scaling.api.hints import Branches, Kernels, Trips, as_hints
from scaling.api.inputs import (
    ClusterLike,
    Overrides,
    XlaOptions,
    as_axes,
    as_options,
    axis_sizes,
    cluster_for,
    keep_devices_free,
)
from scaling.api.predict import predict
from scaling.api.pricing import predicted, step_figures
from scaling.api.public_api import entrance
from scaling.api.result import PredictionResult
from scaling.api.runs import RunLike
from scaling.api.step_choices import (
    Axes,
    all_meshes,
    imbalance,
    settings_of,
    several,
)
from scaling.api.step_plans import StepPlansResult
from scaling.meshes.bandwidths import Measured, measured_calls
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, nearest, whole_number
from scaling.meshes.shape import AXES, axes_text
from scaling.meshes.units import format_size
from scaling.planning.reasons import reason
from scaling.planning.rescaled import exponents, rescaled
from scaling.planning.steps import StepPlan
from scaling.profiles.profile import Profile
from scaling.run.user_code import named_function

EVERY = "all"  # as meshes
# What others call the axes of `like`.
ALIASES = {
    **{"dp": "data", "batch": "data", "replica": "data", "tp": "tensor", "model": "tensor"},
    **{"mp": "tensor", "pp": "stage", "pipe": "stage", "pipeline": "stage"},
    **{"cp": "context", "sequence": "context", "seq": "context", "ep": "expert"},
}


@entrance
def plan_step(
    make: str | Callable[..., Any],
    cluster: ClusterLike,
    nodes: int | None = None,
    *,
    axes: str | Iterable[str] | None = None,
    max: str | Mapping[str, int] | None = None,
    meshes: str | Iterable[str] | None = None,
    top: int = 8,
    variants: str | Iterable[str] | None = None,
    like: RunLike | None = None,
    jobs: int | None = None,
    options: XlaOptions | None = None,
    tokens: float | None = None,
    model_flops: float | None = None,
    trips: Trips | None = None,
    kernels: Kernels | None = None,
    branches: Branches | None = None,
    memory_fraction: float | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
) -> StepPlansResult:
    """Compile a step of yours for its most promising meshes, and rank them by predicted time.

    >>> import jax, jax.numpy as jnp
    >>> import scaling as sc
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> def make(mesh):
    ...     array = lambda shape, *spec: jax.ShapeDtypeStruct(
    ...         shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))
    ...     return jax.jit(lambda x, w: x @ w), (array((512, 256), "data"), array((256, 64)))
    >>> found = sc.plan_step(make, "dgx-h100", axes="data,model", max={"model": 2})
    >>> sorted(row["mesh"] for row in found.rows())
    ['data=4,model=2', 'data=8,model=1']

    Args:
        make: a function, or file.py:function, that gets a jax mesh and returns (step, arguments) or
            (step, arguments, keywords), as `scaling price` takes it.
        cluster: catalogue name, TOML file or Cluster; all its devices are used.
        nodes: number of hosts; None: 1, or as many as the meshes need.
        axes: names of the axes that the function expects, outermost first, such as data,model.
        max: largest size of an axis, such as model=8.
        meshes: such as data=4,model=2; several are split by semicolons, or a sequence; all: each
            one over the axes is compiled, whatever `top`; None: the `top` best of those.
        top: how many meshes to compile, the best. Where there are more, they are ranked first: by
            `like`, or by the collectives of the most balanced meshes, one more than there are axes,
            which are compiled besides and rescaled.
        variants: settings that the function takes as keywords, and options of XLA, compiled for
            each mesh, such as remat=full,xla_gpu_enable_triton_gemm=false; several are split by
            semicolons, or a mapping of name -> {"remat": "full", "options": {...}}.
        like: a run such as llama3-8b whose closed form ranks the meshes, by axes called as ours or
            as usual (model, dp, tp, pp, cp, ep).
        jobs: processes at a time; None: as many as cores.

    Raises:
        InputError: no such function, no axes, no mesh; every mesh fails for one reason.
    """
    stop_if_elsewhere()
    start = time.monotonic()
    if isinstance(make, str):
        if ".py:" not in make:
            raise InputError(f"{make}: write FILE.py:FUNCTION, such as step.py:make")
        named_function(make)
    step_figures((), tokens, model_flops, memory_fraction)
    top = whole_number("--top", top)
    jobs = whole_number("--jobs", len(os.sched_getaffinity(0)) if jobs is None else jobs)
    keep_devices_free()
    is_every = meshes == EVERY
    stated = [] if is_every else [axis_sizes(mesh) for mesh in several(meshes)]
    place = cluster_for(_most_devices(stated), cluster, nodes, overrides)
    _check_devices(stated, place)
    candidates = stated or all_meshes(as_axes(axes, "--axes"), max or {}, place)
    top = len(candidates) if is_every else top
    every = as_options(options)
    settings = {
        name: {**setting, "options": {**every, **setting.get("options", {})}}
        for name, setting in settings_of(variants).items()
    }
    calls = () if measured is None else measured_calls(measured)
    profile, _ = load_profile(place, calibration, measured=calls)
    how = {"calibration": calibration, "measured": calls} | as_hints(trips, kernels, branches)
    figures = {"tokens": tokens, "model_flops": model_flops, "memory_fraction": memory_fraction}

    def outcomes(over: Sequence[Axes]) -> dict[tuple[str, str], Outcome]:
        asked = {(axes_text(m), name): (m, s) for m in over for name, s in settings.items()}
        requests = [
            {"place": place, "axes": dict(m), **how, **s, **figures} for m, s in asked.values()
        ]
        made = predict_elsewhere(make, requests, jobs, f"compiling {len(asked)} programs")
        return dict(zip(asked, made, strict=True))

    seconds: dict[str, float] = {}
    ranked_by, chosen, found = "", list(candidates), {}
    if len(candidates) > top and like is not None:
        ranked_by = "the closed form of what it is like"
        seconds = {axes_text(m): _by_closed_form(like, m, place, profile) for m in candidates}
    elif len(candidates) > top:
        chosen = sorted(candidates, key=imbalance)[: 1 + len(candidates[0])]
        found = outcomes(chosen)
        first = next(iter(settings))
        probes = [
            p for m in chosen if isinstance(p := found[axes_text(m), first], PredictionResult)
        ]
        ranked_by = f"the collectives of {len(probes)} compiled meshes, rescaled"
        seconds = _by_collectives(probes, candidates) if probes else {}
    if ranked_by:
        order = sorted(candidates, key=lambda m: seconds.get(axes_text(m), math.inf))
        known = {mesh for mesh, _ in found}
        rest = [m for m in order[:top] if axes_text(m) not in known]
        found |= outcomes(rest)
    else:
        found = outcomes(chosen)
    compiled = {mesh for mesh, _ in found}
    left = {m: s for m, s in sorted(seconds.items(), key=lambda i: i[1]) if m not in compiled}
    name = make.rpartition("/")[2] if isinstance(make, str) else getattr(make, "__name__", "make")
    plans = _ranked(found)
    return StepPlansResult(name, place, plans, left, ranked_by, time.monotonic() - start)


def _check_devices(meshes: Sequence[Axes], place: Cluster) -> None:
    """Raise InputError for a mesh that leaves devices idle: the plans are of all of them.

    This machine's fake devices are as many as the largest mesh needs.
    """
    every = _most_devices(meshes) if place.virtual_devices else place.devices
    for mesh in meshes:
        if (count := math.prod(mesh.values())) != every:
            fewer = f", or --override gpus_per_node={count}" * (count < place.devices_per_node)
            raise InputError(
                f"--meshes {axes_text(mesh)} has {count} devices, the plans are of {every}: write "
                f"meshes of all of them{'' if place.virtual_devices else fewer}"
            )


def _most_devices(meshes: Iterable[Axes]) -> int:
    return max((math.prod(mesh.values()) for mesh in meshes), default=1)


def _by_closed_form(like: RunLike, mesh: Axes, place: Cluster, profile: Profile) -> float:
    """Return seconds of a step of `like` on a mesh; infinite where it cannot run or fit."""
    for axis in mesh:
        if ALIASES.get(axis, axis) not in AXES:
            raise InputError(f"--like: axis {axis!r}; {nearest(axis, [*AXES, *ALIASES])}")
    sizes: dict[str, int] = {}
    for axis, n in mesh.items():
        ours = ALIASES.get(axis, axis)
        sizes[ours] = sizes.get(ours, 1) * n
    try:
        p = predict(like, place, mesh=sizes, source="analytic", calibration=profile)
    except InputError:
        return math.inf
    return float(p.step_time) if p.memory.fits is not False else math.inf


def _by_collectives(probes: Sequence[PredictionResult], meshes: Sequence[Axes]) -> dict[str, float]:
    """Return mesh -> seconds of the first probe's step with its collectives rescaled to it."""
    programs = [probe.pricing.program for probe in probes]
    split = exponents(programs)
    at = lambda mesh: replace(probes[0].pricing, program=rescaled(programs[0], mesh, split))
    return {axes_text(mesh): float(predicted(at(mesh)).step_time) for mesh in meshes}


def _ranked(found: Mapping[tuple[str, str], Outcome]) -> tuple[StepPlan, ...]:
    """Return the plans: those that fit by their time, then by what they lack, then what failed."""
    made = {key: p for key, p in found.items() if isinstance(p, PredictionResult)}
    failed = {key: str(error) for key, error in found.items() if isinstance(error, InputError)}
    if not made:
        reasons = list(dict.fromkeys(failed.values()))
        more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
        raise InputError(f"none of {len(failed)} programs could be compiled: {reasons[0]}{more}")
    lacks = {k: max(0.0, _lack(p)) for k, p in made.items()}
    order = sorted(made, key=lambda key: (lacks[key], float(made[key].step_time)))
    best = made[order[0]]
    rows: list[tuple[str, str, PredictionResult | None, str]] = []
    for key in order:
        why = best.bottleneck if made[key] is best else reason(made[key], best)
        if lacks[key]:
            why = f"does not fit: {format_size(lacks[key])} too much on each device"
        rows.append((*key, made[key], why))
    rows += [(*key, None, error) for key, error in failed.items()]
    return tuple(StepPlan(i, *row) for i, row in enumerate(rows, 1))


def _lack(prediction: PredictionResult) -> float:
    """Bytes that a device has too few; 0 where its step fits, or nobody knows."""
    memory = prediction.memory
    return 0.0 if memory.fits is not False else float(memory.peak) - (memory.capacity or 0.0)
