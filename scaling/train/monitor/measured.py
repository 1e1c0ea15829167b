"""`measured.json`: step time and memory of a run, to compare with its prediction."""

import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from scaling.compile.lower import planned_peak
from scaling.program.versions import installed_versions
from scaling.train.monitor.goodput import Clock
from scaling.train.prepare import Plan, Programs

MEASURED = "measured.json"
WARM_UP = 3  # steps left out: first use of buffers, threads and caches
PACKAGES = ("jax", "jaxlib", "flax", "optax")


def measured(
    plan: Plan,
    programs: Programs,
    step_times: Mapping[int, float],
    recorded: tuple[int, int] | None,
    clock: Clock,
) -> dict[str, Any]:
    """Median step time with its spread (quartile distance over median), memory, machine, versions.

    The first steps of the process and the recorded ones, which take longer, are left out unless no
    others are left. None is in flight when a recording begins or is written.

    Args:
        step_times: seconds of every step of this process, by its number, in order.
        recorded: first and last step of a recorded profile.
        clock: of the whole run, for what its wall time went into.
    """
    disturbed = range(recorded[0], recorded[1] + 1) if recorded else ()
    later = {step: step_times[step] for step in list(step_times)[WARM_UP:]}
    alone = [seconds for step, seconds in later.items() if step not in disturbed]
    times = alone or list(later.values()) or list(step_times.values())
    device, spent = plan.mesh.devices.flat[0], clock.summary()
    return {
        "name": plan.run.name,
        "machine": f"{plan.mesh.size} x {device.device_kind}, {platform.machine()}",
        "versions": installed_versions(PACKAGES),
        "step_time": {
            "measured": statistics.median(times) if times else None,
            "spread": _spread(times),
            "steps": len(times),
        },
        "memory": {
            "measured": peak_memory(plan.mesh),
            "compiled": planned_peak(programs.step, plan.mesh),
        },
        "recorded_steps": list(recorded) if recorded else None,
        "goodput": clock.goodput,
        "wall_time": spent,
        "checkpoints": {"saves": clock.saves, "share": spent["checkpoints"] / spent["total"]},
    }


def _spread(times: Sequence[float]) -> float | None:
    if len(times) < 4:
        return None
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle


def peak_memory(mesh: Mesh) -> int | None:
    """Bytes at the fullest moment of the fullest local device; None where jax does not count."""
    counts = [device.memory_stats() for device in mesh.local_devices]
    peaks = [stats["peak_bytes_in_use"] for stats in counts if stats]
    return max(peaks) if peaks else None
