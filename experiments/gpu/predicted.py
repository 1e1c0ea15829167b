"""What is predicted for a measured step, and how far off it is.

    shipped      by the figures that come with the package, as for a chip that one does not have
    calibrated   by those measured on this device

of the program that ran, and of the one that is compiled for a chip that is not there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from experiments.gpu.machine import identify, short
from scaling.comparing.compare import compare_recording
from scaling.comparing.recorded import recorded_events
from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.profiles.io import profile_of, read_profile
from scaling.profiles.profile import Profile
from scaling.program.ir import Program, kernels
from scaling.run import Run
from scaling.simulate.prediction import Prediction
from scaling.simulate.step import Priced, price
from scaling.training.running import predict_compiled

Guess = tuple[Priced, Prediction] | str  # or why there is none
LONGEST = 15  # kernels of a comparison that the results keep; the raw data have all


def home(accelerator: str) -> Cluster:
    """A host of the catalogue with one such chip."""
    clusters = (catalog.load(name) for name in catalog.names())
    found = next(c for c in clusters if c.accelerator.name == accelerator)
    return catalog.load(found.name, 1, {"gpus_per_node": 1})


def profiles_of(accelerator: str | None, calibration: Path) -> dict[str, Profile]:
    """The figures to price with, by name; those that there are."""
    found = {}
    if accelerator is not None:
        found["shipped"] = profile_of(home(accelerator).accelerator)
    if calibration.exists():
        found["calibrated"] = read_profile(calibration)
    return found


def guesses(
    step: jax.stages.Compiled, mesh: Mesh, run: Run, profiles: Mapping[str, Profile]
) -> dict[str, Guess]:
    """The prediction of a compiled step by each profile."""
    return {name: _guess(step, mesh, run, profile) for name, profile in profiles.items()}


def _guess(step: jax.stages.Compiled, mesh: Mesh, run: Run, profile: Profile) -> Guess:
    try:
        return predict_compiled(step, mesh, run, profile)
    except Exception as error:  # a step that cannot be priced is measured all the same
        return short(error)


def as_dict(guess: Guess) -> dict[str, Any]:
    """Step time with its range, memory and what binds; or {"error"} where it cannot be priced."""
    if isinstance(guess, str):
        return {"error": guess}
    _, found = guess
    return {
        "step_time": float(found.step_time),
        "step_time_low": float(found.step_time_low),
        "step_time_high": float(found.step_time_high),
        "memory": float(found.memory.peak),
        "bottleneck": found.bottleneck,
        "grade": found.grade,
    }


def kernel_seconds(step: jax.stages.Compiled) -> float | None:
    """Seconds of a program of one device by shipped figures; None where these have no chip."""
    chip = identify(jax.devices()[0].device_kind)
    if chip.accelerator is None:
        return None
    cluster = home(chip.accelerator)
    try:
        program = read_program(step.as_text() or "", {"data": 1}, "kernel")
        return float(price(program, cluster, profile_of(cluster.accelerator)).timeline.total)
    except (InputError, UnknownHlo):
        return None


def counts(program: Program) -> dict[str, dict[str, float]]:
    """Kernels of a program by kind, in one step: calls, FLOPs, bytes."""
    found: dict[str, dict[str, float]] = {}
    for kernel, times in kernels(program):
        sums = found.setdefault(kernel.kind, {"calls": 0.0, "flops": 0.0, "bytes": 0.0})
        sums["calls"] += float(times)
        sums["flops"] += float(times * kernel.flops)
        sums["bytes"] += float(times * kernel.bytes)
    return found


def beside_recording(guess: Guess, recording: Path, steps: int) -> dict[str, Any]:
    """A prediction joined with a recorded profile, per term, class and kernel; or {"error"}."""
    if isinstance(guess, str):
        return {"error": guess}
    priced, found = guess
    try:
        return compare_recording(found, priced, recorded_events(recording), steps).to_dict()
    except Exception as error:
        return {"error": short(error)}


def shortened(comparison: dict[str, Any]) -> dict[str, Any]:
    """A comparison with the kernels alone whose times differ most."""
    gap = lambda kernel: -abs((kernel["predicted"] or 0.0) - (kernel["measured"] or 0.0))
    longest = sorted(comparison.get("kernels", []), key=gap)[:LONGEST]
    return comparison | ({"kernels": longest} if "kernels" in comparison else {})


def errors(guess: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, float | None]:
    """predicted / measured - 1, of step time and of memory; None where either is missing."""
    memory = case["memory"]
    return {
        "step_time": _error(guess.get("step_time"), case["step_time"]["median"]),
        "memory": _error(guess.get("memory"), memory["peak_in_use"]),
        "compiled_memory": _error(guess.get("memory"), memory["compiled"]["peak"]),
    }


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or not measured:
        return None
    return predicted / measured - 1
