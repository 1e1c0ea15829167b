"""A timeline for Perfetto (Chrome's trace event format, JSON): one track per stream, and memory.

Open the file at https://ui.perfetto.dev; a folder NAME.xprof is for XProf. Names are
like `all-gather[fsdp] layers/mlp 117 MB`; the arguments of an event hold its bytes, FLOPs, formula
and where its figures come from.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scaling.comparing.recorded import XPLANE, RecordedEvent
from scaling.comparing.steps import CONTAINER, known_operations
from scaling.meshes.units import format_size
from scaling.profiles.grades import grade_of
from scaling.profiles.profile import Evidence
from scaling.program.ir import Collective, Kernel, Operation, Program
from scaling.program.serialization import plain
from scaling.report.xplane import XPROF, xspace
from scaling.simulate.memory import ON_DEVICE, memory_over_time
from scaling.simulate.prediction import axis_name
from scaling.simulate.step import Priced

STREAMS = {"compute": 1, "communication": 2, "permute": 3, "copy": 4, "weights": 5, "experts": 6}
MICROSECONDS = 1e6  # the unit of the format
PREDICTED, MEASURED = 1, 2  # ids of the processes of a trace
Record = dict[str, Any]  # one event of the format


def trace_events(priced: Priced, title: str = "predicted") -> list[Record]:
    """Events of a program priced with `record=True`, as one process of a trace."""
    events = priced.timeline.events
    times, sizes = memory_over_time(priced.memory, events)
    memory = {"ph": "C", "name": "memory", "pid": PREDICTED, "tid": 0}
    counters = [
        memory | {"ts": start * MICROSECONDS, "args": dict(zip(ON_DEVICE, parts, strict=True))}
        for start, parts in zip(times.tolist(), sizes.tolist(), strict=True)
    ]
    used = {event.stream for event in events}
    known = {event.operation.name: event.operation for event in events}
    records = {
        name: {"ph": "X", **_words(step), "pid": PREDICTED, "args": arguments(step, priced)}
        for name, step in known.items()
    }
    heads = _heads(PREDICTED, title, {s: n for s, n in STREAMS.items() if s in used})
    return [*heads, *counters] + [
        records[e.operation.name] | _times(STREAMS[e.stream], e.start, e.end - e.start)
        for e in events
    ]


def measured_events(recorded: Iterable[RecordedEvent], program: Program) -> list[Record]:
    """Recorded events of the program's first device, as another process of a trace.

    What ran beside them in the same module, and is not in the program, has its own name.
    """
    named, recorded = known_operations(program), list(recorded)
    modules = {event.module for event in recorded if event.name in named}
    of_module = [e for e in recorded if e.module in modules and not CONTAINER.match(e.name)]
    first = min((event.device for event in of_module), default=0)
    found = [event for event in of_module if event.device == first]
    begin = min((event.start for event in found), default=0.0)
    streams = {name: n for n, name in enumerate(dict.fromkeys(e.stream for e in found), 1)}
    records = _heads(MEASURED, "measured", streams)
    for event in found:
        arguments = {"instruction": event.name, "source": "recorded by jax.profiler"}
        words = {"name": event.name or event.kernel, "cat": "other"}
        if event.name in named:
            words = _words(named[event.name])
        times = _times(streams[event.stream], event.start - begin, event.duration)
        records.append({"ph": "X", **words, "pid": MEASURED, "args": arguments, **times})
    return records


def _times(track: int, start: float, seconds: float) -> Record:
    return {"tid": track, "ts": start * MICROSECONDS, "dur": seconds * MICROSECONDS}


def write_trace(events: Iterable[Record], path: Path) -> None:
    """Write events for Perfetto, or as a folder that XProf opens if it is called NAME.xprof."""
    if path.suffix == XPROF:
        file = path / "plugins" / "profile" / "predicted" / f"{path.stem}{XPLANE}"
        path.mkdir(exist_ok=True)  # in a folder that there is, as any file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(xspace(events))
        return
    document = {"traceEvents": list(events), "displayTimeUnit": "ms"}
    path.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")


def trace_line(path: Path) -> str:
    """Return the line that says where a trace is and what opens it."""
    viewer = "https://ui.perfetto.dev"
    if path.suffix == XPROF:
        viewer = f"xprof --logdir {path}"
    return f"trace: {path} (open it with {viewer})"


def label(step: Operation) -> str:
    """Name of an event."""
    layer = step.origin.layer or step.origin.phase
    if isinstance(step, Collective):
        size = format_size(float(np.max(step.bytes * step.part)))
        return " ".join(filter(None, (f"{step.kind}[{axis_name(step)}]", layer, size)))
    kind = step.kind if isinstance(step, Kernel) else ""
    return " ".join(filter(None, (kind, layer, step.name)))


def arguments(step: Operation, priced: Priced) -> Record:
    """Bytes, formula and source of one event."""
    common = {"instruction": step.name, "phase": step.origin.phase, "layer": step.origin.layer}
    if isinstance(step, Collective):
        cost = priced.collectives[step.name]
        return common | {
            "bytes": plain(step.bytes * step.part),
            "dtype": step.dtype,
            "algorithm": cost.algorithm,
            "level": cost.level,
            "bottleneck": cost.bottleneck,
            "lower_bound_us": plain(cost.lower_bound * MICROSECONDS),
            "formula": "latency + bytes over the busiest links / their bandwidth",
            "source": _source(cost.evidence, priced),
        }
    assert isinstance(step, Kernel)
    price = priced.kernels[step.name]
    return common | {
        "flops": plain(step.flops),
        "bytes": plain(step.bytes),
        "dtype": step.dtype,
        "dims": [plain(size) for size in step.dims],
        "bound": str(price.bound),
        "formula": "max(FLOPs / rate, bytes / bandwidth) + overhead",
        "source": _source(price.evidence, priced),
    }


def _source(evidence: Evidence | None, priced: Priced) -> str:
    """Short, for it stands in every event; `--explain` prints it in full."""
    grade = grade_of(evidence) if evidence is not None else "nothing to price"
    return f"profile {priced.profile.name}, {grade}"


def _heads(process: int, title: str, streams: Mapping[str, int]) -> list[Record]:
    names = [("process_name", 0, title), *(("thread_name", n, s) for s, n in streams.items())]
    return [
        {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
        for what, thread, name in names
    ]


def _words(step: Operation) -> Record:
    return {"name": label(step), "cat": step.origin.phase or "unknown"}
