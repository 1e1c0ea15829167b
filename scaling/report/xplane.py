"""A timeline for XProf and TensorBoard's profile plugin: HOST.xplane.pb, what jax.profiler writes.

Written from the events of `scaling.report.trace`: each process is the plane of a GPU, each track a
line of it, and a line "Steps" holds the whole step. Names of planes, lines and statistics are
those that XProf reads (openxla/xprof, xplane_schema.cc): "/device:GPU:0", "Steps", `tf_op`,
`flops`, `bytes_accessed`, `group_id`. Without `hlo_op`, which XProf would look up in a program
that it has not, its table of operations goes by `tf_op`.

Its pages of the step time count an event of a GPU that has a `group_id`, the step's, and a
`correlation_id`, that of its launch, both as signed numbers; it is a collective if its name begins
with "nccl", and of 16 bits if "half" is in it (openxla/xprof, xplane_to_step_events.cc). They look
for steps where there is a plane of the host: it has an event "train" that lasts as long as the
step. That has no `group_id`, or XProf takes the trace for one that has its lines of steps already
(tried with xprof 2.24.2, 2026-11-29).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

from scaling.program.ir import COLLECTIVE_KINDS

XPROF = ".xprof"  # ends the name of a folder of such a file: NAME.xprof/plugins/profile/RUN/
PICOSECONDS = 1e6  # in a microsecond, the unit of the events; the format counts picoseconds
STATISTICS = {  # of an event of ours: its name in XProf
    "instruction": "instruction",
    "flops": "flops",
    "bytes": "bytes_accessed",
    "phase": "phase",
    "bottleneck": "bottleneck",
    "bound": "bound",
    "source": "source",
}
PATH = "phase", "layer", "instruction"  # of an event, as XProf's table of operations shows it
HOST = "/host:CPU"
HALF = "bf16", "fp16"  # formats of 16 bits
STEPS_LINE = 0xDEADBEEF  # number of the line of steps (openxla/xla, trace_utils.h)
STEP = 1  # number of the one step
TIES = {"group_id": STEP, "correlation_id": 0}  # of events: to their step, to a launch: any
quoted = partial(json.dumps, ensure_ascii=False)  # a string as protobuf's text format has it too


def xspace(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Return an XSpace (tsl/profiler/protobuf/xplane.proto), serialized by jax."""
    from jax.profiler import ProfileData

    return ProfileData.text_proto_to_serialized_xspace("\n".join(_planes(list(events))))


def _planes(events: list[Mapping[str, Any]]) -> Iterator[str]:
    """Return the planes of a trace in protobuf's text format: each process's, and the host's."""
    longest = 0.0
    titles = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    for device, (process, title) in enumerate(titles.items()):
        mine = [e for e in events if e["pid"] == process]
        timed = [e for e in mine if e["ph"] == "X"]
        tracks = {e["tid"]: e["args"]["name"] for e in mine if e["name"] == "thread_name"}
        end = max((e["ts"] + e["dur"] for e in timed), default=0.0)
        longest = max(longest, end)
        step: dict[str, Any] = {"name": str(STEP), "ts": 0.0, "dur": end, "args": {}}
        names, words = (defaultdict[str, int](count(1).__next__) for _ in range(2))
        lines = [_line(STEPS_LINE, "Steps", [step], names, words)]
        for track, name in tracks.items():
            of_track = [e for e in timed if e["tid"] == track]
            lines.append(_line(track, f"Stream #{track}({name})", of_track, names, words))
        about = f"stats {{ {_stat('title', title, words)} }}"
        metadata = _metadata("event_metadata", names) + _metadata("stat_metadata", words)
        head = f"id: {device + 1} name: {quoted(f'/device:GPU:{device}')}"
        yield f"planes {{ {head} {' '.join(lines)} {about} {metadata} }}"
    marker = f"events {{ metadata_id: 1 duration_ps: {round(longest * PICOSECONDS)} }}"
    line = f'lines {{ id: 1 name: "steps" {marker} }} {_metadata("event_metadata", {"train": 1})}'
    yield f"planes {{ id: {len(titles) + 1} name: {quoted(HOST)} {line} }}"


def _line(
    number: int,
    title: str,
    events: Iterable[Mapping[str, Any]],
    names: Mapping[str, int],
    words: Mapping[str, int],
) -> str:
    """Return a line of a plane; `names` and `words` give texts their numbers."""
    parts = []
    for event in events:
        name = event["name"]
        if name.partition("[")[0] in COLLECTIVE_KINDS:
            name = f"nccl {name}"
        elif event["args"].get("dtype") in HALF:
            name += " half"
        offset, duration = (round(event[part] * PICOSECONDS) for part in ("ts", "dur"))
        found = {STATISTICS[k]: v for k, v in event["args"].items() if k in STATISTICS and v != ""}
        if path := "/".join(filter(None, (event["args"].get(k) for k in PATH))):
            found["tf_op"] = f"{path}:{event['name'].split()[0].replace('-', '_')}"
        stats = " ".join(
            f"stats {{ {_stat(key, value, words)} }}" for key, value in {**found, **TIES}.items()
        )
        parts.append(
            f"events {{ metadata_id: {names[name]} offset_ps: {offset} "
            f"duration_ps: {duration} {stats} }}"
        )
    return f"lines {{ id: {number} name: {quoted(title)} {' '.join(parts)} }}"


def _stat(key: str, value: Any, words: Mapping[str, int]) -> str:
    """Return a statistic; counts are whole numbers, and texts are kept once in a plane."""
    kind = "int64_value" if key in TIES else "uint64_value"
    number = isinstance(value, int | float)
    kept = f"{kind}: {round(value)}" if number else f"ref_value: {words[str(value)]}"
    return f"metadata_id: {words[key]} {kept}"


def _metadata(field: str, texts: Mapping[str, int]) -> str:
    """Return the texts of events or statistics by their numbers."""
    return " ".join(
        f"{field} {{ key: {n} value {{ id: {n} name: {quoted(text)} }} }}"
        for text, n in texts.items()
    )
