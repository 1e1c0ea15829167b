"""`measured.json`: step time and memory of a run, to compare with its prediction."""

from collections.abc import Mapping
from typing import Any

from jax.sharding import Mesh

from scaling.compile.lower import planned_peak
from scaling.program.versions import installed_versions
from scaling.training.monitor.environment import machine_name
from scaling.training.monitor.goodput import Clock
from scaling.training.monitor.recover_measured import PACKAGES, step_time_summary
from scaling.training.prepare import Plan, Programs


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
    spent = clock.summary()
    return {
        "name": plan.run.name,
        "machine": machine_name(plan.mesh),
        "versions": installed_versions(PACKAGES),
        "step_time": step_time_summary(step_times, recorded),
        "memory": {
            "measured": peak_memory(plan.mesh),
            "compiled": planned_peak(programs.step, plan.mesh),
        },
        "recorded_steps": list(recorded) if recorded else None,
        "goodput": clock.goodput,
        "wall_time": spent,
        "checkpoints": {"saves": clock.saves, "share": spent["checkpoints"] / spent["total"]},
    }


def peak_memory(mesh: Mesh) -> int | None:
    """Bytes at the fullest moment of the fullest local device; None where jax does not count."""
    counts = [device.memory_stats() for device in mesh.local_devices]
    peaks = [stats["peak_bytes_in_use"] for stats in counts if stats]
    return max(peaks) if peaks else None
