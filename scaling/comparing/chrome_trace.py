"""A recording in Chrome's trace event format: what jax.profiler writes beside HOST.xplane.pb.

    {"traceEvents": [
      {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
      {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "Stream #13"}},
      {"ph": "X", "pid": 1, "tid": 2, "ts": 10.5, "dur": 3.2, "name": "loop_add_fusion_1",
       "args": {"hlo_op": "loop_add_fusion.1", "hlo_module": "jit_step"}}, ...]}

HOST.trace.json.gz and perfetto_trace.json.gz have it; times are microseconds. Ends of a CPU's
operations cannot be told from it: their records are not joined to those of the starts.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scaling.meshes.errors import InputError

JSON = (".json", ".json.gz")
GZIP = b"\x1f\x8b"  # how a compressed file begins (RFC 1952)
LATEST = 2**63 / 1e3  # us: the profiler counts nanoseconds in 64 bits
MOST = 2**27  # bytes unpacked, chosen by this project: its events take some 1 GB of memory
Event = dict[str, Any]


class DeviceRecord(NamedTuple):
    """An event and where it stands."""

    process: str  # "/device:GPU:0"
    thread: str  # "Stream #13(Compute)"
    event: Event


def read_trace(path: Path) -> list[Event]:
    """The events in a file.

    Raises:
        InputError: it cannot be read, is cut off, too large, or no trace.
    """
    try:
        with path.open("rb") as file:  # browsers unpack a .gz that they load, and keep its name
            is_packed = file.peek(len(GZIP)).startswith(GZIP)
            data = (gzip.GzipFile(fileobj=file) if is_packed else file).read(MOST + 1)
    except EOFError:
        raise InputError(f"{path} is cut off: its compressed data ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MOST:
        raise InputError(
            f"{path} unpacks to more than {MOST:,} bytes; give the .xplane.pb beside it instead"
        )
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, or cut off: {error}") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):  # a bare list is a trace, too
        raise InputError(f'{path} is no trace: it has no "traceEvents", as jax.profiler writes it')
    return events


def device_records(events: list[Event], path: Path) -> Iterator[DeviceRecord]:
    """The complete events of a trace, with the names of their process and thread."""
    processes: dict[Any, str] = {}
    threads: dict[tuple[Any, Any], str] = {}
    try:
        for event in events:
            if event.get("ph") == "M" and event.get("name") == "process_name":
                processes[event["pid"]] = str(event["args"]["name"])
            elif event.get("ph") == "M" and event.get("name") == "thread_name":
                threads[event["pid"], event["tid"]] = str(event["args"]["name"])
        for event in events:
            if event.get("ph") == "X":
                times = float(event["ts"]), float(event.get("dur", 0.0))
                args = dict(event.get("args") or {})
                if not all(abs(time) <= LATEST for time in times):  # NaN is not, either
                    raise ValueError("a time that is not finite, or beyond 2^63 ns")
                thread = threads.get((event["pid"], event.get("tid")), "")
                known = {"name": str(event.get("name", "")), "ts": times[0], "dur": times[1]}
                yield DeviceRecord(processes.get(event["pid"], ""), thread, known | {"args": args})
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no trace: an event in it has {error!r}") from None
