"""The prediction for a measured case, with the efficiencies that were calibrated just before."""

from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from experiments.gpu.machine import without_paths
from scaling.calibrate.calibrate import calibrate
from scaling.hlo.parse import UnknownHlo
from scaling.meshes.errors import InputError
from scaling.profiles.io import write_profile
from scaling.profiles.profile import Profile
from scaling.run import Run
from scaling.train.running import predict_compiled


def calibrated(path: Path, say: Any = print) -> Profile:
    """Measure the devices of this machine and keep the file beside the results."""
    profile = calibrate(quick=True, progress=say)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_profile(profile, path)
    return profile


def predicted(step: jax.stages.Compiled, mesh: Mesh, run: Run, profile: Profile) -> dict[str, Any]:
    """Step time with its range, memory and what binds; or {"error"} where it cannot be priced."""
    try:
        _, found = predict_compiled(step, mesh, run, profile)
    except (InputError, UnknownHlo) as error:
        return {"error": without_paths(str(error))}
    return {
        "step_time": found.step_time,
        "step_time_low": found.step_time_low,
        "step_time_high": found.step_time_high,
        "memory": found.memory.peak,
        "bottleneck": found.bottleneck,
        "grade": found.grade,
    }


def errors(case: dict[str, Any]) -> dict[str, float | None]:
    """predicted / measured - 1, of step time and of memory; None where either is missing."""
    guess = case.get("predicted") or {}
    memory = case["memory"]
    peak = memory["peak_in_use"] if memory["is_own"] else None
    return {
        "step_time": _error(guess.get("step_time"), case["step_time"]["median"]),
        "memory": _error(guess.get("memory"), peak),
        "compiled_memory": _error(guess.get("memory"), memory["compiled"]["peak"]),
    }


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or not measured:
        return None
    return predicted / measured - 1
