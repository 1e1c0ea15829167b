"""Traces in JSON as jax.profiler writes them on GPUs, made from a predicted timeline."""

import gzip
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaling.api.pricing import price_program
from scaling.comparing.classes import class_of
from scaling.comparing.steps import known_operations
from scaling.simulate.step import lost_beside
from scaling.simulate.timeline import Timeline, run_schedule

STREAMS = {"compute": 13, "communication": 14}
MICROSECONDS = 1e6


@dataclass(frozen=True)
class Recorded:
    """What a run does otherwise than predicted."""

    steps: int = 4
    devices: int = 2
    module: str = "jit_step"
    times: Mapping[str, float] = field(default_factory=dict)  # factors by name or by class
    missing: Collection[str] = ()  # names
    renamed: Mapping[str, str] = field(default_factory=dict)
    graphs: bool = False  # kernels run in command buffers, without their instructions
    gap: float = 0.0  # s between two steps
    before: float = 0.0  # share of a step that was recorded before the first
    after: float = 0.0  # and after the last


def timeline_of_run(result: Any, run: Recorded) -> Timeline:
    """The timeline with other times of some operations: what waits for them is late, too."""
    priced = price_program(result.pricing)
    costs = {**priced.kernels, **priced.collectives}
    classes = {n: class_of(step) for n, step in known_operations(priced.program).items()}
    factor = lambda name: run.times.get(name, run.times.get(classes[name], 1.0))
    times = {name: cost.time * factor(name) for name, cost in costs.items()}
    lost = lost_beside(priced.program, times, priced.cluster, priced.profile)
    return run_schedule(priced.program, times, record=True, lost=lost)


def events_of_run(result: Any, run: Recorded) -> list[dict[str, Any]]:
    """The events of the format, of all devices."""
    timeline = timeline_of_run(result, run)
    found: list[dict[str, Any]] = []
    for device in range(run.devices):
        found += _heads(device + 1)
        for n in range(-1, run.steps + 1):
            start = n * (float(timeline.total) + run.gap)
            kept = [e for e in timeline.events if e.operation.name not in run.missing]
            lowest = len(kept) - round(run.before * len(kept)) if n < 0 else 0
            highest = round(run.after * len(kept)) if n == run.steps else len(kept)
            found += [_record(e, device + 1, start, run) for e in kept[lowest:highest]]
    return found


def write_run(path: Path, result: Any, **run: Any) -> Path:
    """Write a run as jax.profiler does; returns the path."""
    document = {
        "displayTimeUnit": "ns",
        "traceEvents": [*events_of_run(result, Recorded(**run)), {}],
    }
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def _heads(process: int) -> list[dict[str, Any]]:
    name = {"ph": "M", "pid": process, "name": "process_name"}
    thread = {"ph": "M", "pid": process, "name": "thread_name"}
    return [name | {"args": {"name": f"/device:GPU:{process - 1}"}}] + [
        thread | {"tid": number, "args": {"name": f"Stream #{number}(Compute)"}}
        for number in STREAMS.values()
    ]


def _record(event: Any, process: int, start: float, run: Recorded) -> dict[str, Any]:
    step = event.operation
    name = run.renamed.get(step.name, step.name)
    of_graph = run.graphs and event.stream == "compute"
    names = {"hlo_op": "command_buffer" if of_graph else name, "hlo_module": run.module}
    return {
        **{"ph": "X", "pid": process, "tid": STREAMS[event.stream]},
        "ts": (start + event.start) * MICROSECONDS,
        "dur": (event.end - event.start) * MICROSECONDS,
        "name": re.sub(r"\W", "_", name),
        "args": names,
    }
