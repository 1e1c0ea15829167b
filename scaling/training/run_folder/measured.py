"""`measured.json`: step time and memory of a run, to compare with its prediction. Imports no jax.

A run that could not write it at its end leaves the other files, from which it is made again:

metrics.jsonl       the steps of the last process that trained, and their memory
environment.json    when that process began, its machine and versions
run.json            the name

What only that process knew is null: the compiled memory, the wall time, the recorded steps.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling.meshes.durable import write_json
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json, writing
from scaling.training.run_folder.metrics import Record, readable_metrics

MEASURED, ENVIRONMENT = "measured.json", "environment.json"
WARM_UP = 3  # steps left out: first use of buffers, threads and caches
VERSIONS = ("jax", "jaxlib", "flax", "optax")  # whose versions are told
NO_CLOCK: Mapping[str, Any] = {"goodput": None, "wall_time": None, "checkpoints": None}


def measured_document(
    name: str,
    machine: str,
    versions: Mapping[str, str],
    step_times: Mapping[int, float],
    memory: Mapping[str, int | None],
    recorded: tuple[int, int] | None = None,
    clock: Mapping[str, Any] = NO_CLOCK,
) -> dict[str, Any]:
    """The document of measured.json: median step time with its spread (quartile distance over
    median), memory, machine, versions.

    The first steps of the process and the recorded ones, which take longer, are left out unless no
    others are left. None is in flight when a recording begins or is written.

    Args:
        step_times: seconds of every step of a process, by its number, in order.
        memory: bytes on a device, `measured` and `compiled`.
        recorded: first and last step of a recorded profile.
        clock: what the wall time went into; see `Clock.figures`.
    """
    disturbed = range(recorded[0], recorded[1] + 1) if recorded else ()
    later = {step: step_times[step] for step in list(step_times)[WARM_UP:]}
    alone = [seconds for step, seconds in later.items() if step not in disturbed]
    times = alone or list(later.values()) or list(step_times.values())
    median, spread = statistics.median(times) if times else None, None
    if len(times) >= 4:
        low, middle, high = statistics.quantiles(times, n=4)
        spread = (high - low) / middle
    return {
        **dict(name=name, machine=machine, versions=versions),
        "step_time": {"measured": median, "spread": spread, "steps": len(times)},
        "memory": memory,
        "recorded_steps": list(recorded) if recorded else None,
        **clock,
    }


def lacks_measured(folder: Path) -> bool:
    """True if measured.json is missing, or was not written to its end."""
    try:
        read_json(folder / MEASURED)
    except InputError:
        return True
    return False


def rebuild_measured(folder: Path) -> list[str]:
    """Write measured.json unless it is there or nothing is known of a step.

    Returns:
        A line that says so, or what else is missing for it.

    Raises:
        InputError: the folder cannot be written to.
    """
    if not lacks_measured(folder):
        return []
    try:
        records, _ = readable_metrics(folder)
    except InputError:
        return []
    try:
        document = _document(folder, records)
    except InputError as error:  # the other files are missing, or of an earlier version
        steps = sum("step_time" in line for line in records)
        lost = (
            f"{folder / MEASURED} is missing, and cannot be made again from the {steps:,} steps in "
            f"metrics.jsonl: {error}. Put it back as it was, or train on with --resume and a "
            "larger --steps, which measures anew"
        )
        return [lost] if steps else []
    if document["step_time"]["measured"] is None:
        return []
    with writing(folder / MEASURED, "make it writable, then try again"):
        write_json(folder / MEASURED, document)
    return [f"{folder / MEASURED} was missing: made again from metrics.jsonl"]


def _document(folder: Path, records: Sequence[Record]) -> dict[str, Any]:
    """As `measured_document`, from the other files; InputError where they do not say enough."""
    environment, run = read_json(folder / ENVIRONMENT), read_json(folder / "run.json")
    try:
        began, machine = environment["began"], environment["machine"]
        versions = {name: environment["versions"][name] for name in VERSIONS}
        lines = [line for line in records if line.get("time", 0.0) >= began]
        times = {line["step"]: line["step_time"] for line in lines if line.get("step_time")}
        peak = max((line["peak_memory"] for line in lines if line.get("peak_memory")), default=None)
        memory = {"measured": peak, "compiled": None}
        clock = {**NO_CLOCK, "goodput": lines[-1].get("goodput") if lines else None}
        return measured_document(run["name"], machine, versions, times, memory, clock=clock)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{folder}: {error!r}") from None
