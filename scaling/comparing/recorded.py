"""A recorded profile, read: which instruction of which program ran when, on which device.

    DIR/plugins/profile/2026_01_31_12_00_00/HOST.xplane.pb      one file per process
      /device:GPU:0                a plane per GPU
        Stream #14(Compute)        a line per stream: kernels, with the stats hlo_op and hlo_module
      /host:CPU                    one plane for all CPU devices
        tf_XLAEigen/...            a line per thread: operations, with device_ordinal and run_id too

On the CPU an operation is recorded twice: where it started, and as `end: NAME` where it was over,
perhaps on another thread (a collective, a loop). The stats `_p` and `_c` join the two. Kernels of a
GPU without hlo_op ran inside of a command buffer (a CUDA graph), or are of no program.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaling.comparing.chrome_trace import JSON, device_records, read_trace
from scaling.comparing.classes import is_of_xla, library_class
from scaling.meshes.errors import InputError, is_count

NANOSECOND, MICROSECOND = 1e-9, 1e-6
HOST_PLANE, GPU_PLANE = "/host:CPU", "/device:GPU:"
STREAM = "Stream"  # how the lines of a GPU plane that are streams begin
ENDED = "end: "  # prefix of the second record
NESTING = "::"  # between the names of nested annotations in hlo_op; the innermost is last
COPIES = ("Memcpy", "Memset", "Copy")  # how what a GPU does besides kernels is called
BUFFER = "command_buffer"  # how the name of one begins
XPLANE = ".xplane.pb"
MOST_EVENTS = 1_000_000  # chosen by this project: half a minute's reading, 1 GB of memory
MOST_ORDINAL = 2**31 - 1  # XLA counts the devices of a process in an int32
RECORD = "record one with `scaling train ... --record-profile 10:12`"


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One execution of one instruction on one device; seconds since the recording began."""

    device: int
    stream: str  # of the GPU, or thread of the CPU
    name: str  # of the HLO instruction; "": not recorded
    module: str  # of the HLO module: jit_step
    start: float
    duration: float  # on the CPU with all waiting, for other devices and for a free core
    run: int | None = None  # which execution of the module on a CPU; None on GPUs
    kernel: str = ""  # what ran on the GPU

    @property
    def end(self) -> float:
        """Seconds since the recording began."""
        return self.start + self.duration


def recorded_events(place: Path, record: str = RECORD) -> list[RecordedEvent]:
    """Everything of compiled programs in a file or in the newest recording of a folder, by start.

    The devices of several processes are counted on, in the order of their files' names; the clocks
    of two processes are not the same.

    Args:
        place: HOST.xplane.pb, a trace in JSON, or a folder above them.

    Raises:
        InputError: no recording, an unreadable one, or one without a single kernel or instruction.
    """
    events: list[RecordedEvent] = []
    for file in profile_files(place, record):
        before = 1 + max((event.device for event in events), default=-1)
        found = events_of(_read(file)) if file.name.endswith(XPLANE) else _trace_events(file)
        events += [replace(e, device=e.device + before) for e in found] if before else found
        if len(events) > MOST_EVENTS:
            raise InputError(_too_many(place))
    if not any(e.name or is_of_xla(e.kernel) or library_class(e.kernel) for e in events):
        raise InputError(
            f"the profile in {place} holds no instruction of a compiled program on a GPU or a CPU "
            f"device: {record}, of steps that the run still takes"
        )
    if not any(event.duration for event in events):
        raise InputError(f"no event of {place} lasts any time: {record}")
    return sorted(events, key=lambda event: event.start)


def profile_files(place: Path, record: str = RECORD) -> list[Path]:
    """The files of the newest recording below a folder, one per process; a file itself.

    Raises:
        InputError: there is none, or a file of another kind.
    """
    try:
        found = [place] if place.is_file() else []
        for suffix in (XPLANE, ".trace.json.gz", "perfetto_trace.json.gz"):  # the first there is
            if not found and (files := list(place.glob(f"**/*{suffix}"))):
                newest = max(files, key=lambda file: (file.stat().st_mtime, str(file)))
                found = sorted(newest.parent.glob(f"*{suffix}"))
    except OSError as error:
        raise InputError(f"cannot read {place}: {error.strerror}") from None
    if not found:
        absent = "" if place.exists() else ", which does not exist"
        raise InputError(f"no profile in {place}{absent}: {record}")
    if not found[0].name.endswith((XPLANE, *JSON)):
        kinds = f"HOST{XPLANE}, or its trace in JSON ({', '.join(JSON)})"
        raise InputError(f"{place} is no profile that jax.profiler writes: give {kinds}")
    return found


def events_of(profile: Any) -> list[RecordedEvent]:
    """The events of one process, from its `jax.profiler.ProfileData`: of GPUs, else of CPUs.

    Raises:
        InputError: more than MOST_EVENTS, a name that is not text, a device that has no number.
    """
    try:
        planes = list(profile.planes)
        each = itertools.chain.from_iterable
        on_gpus = each(_gpu_events(plane) for plane in planes if plane.name.startswith(GPU_PLANE))
        on_cpus = each(_cpu_events(plane) for plane in planes if plane.name == HOST_PLANE)
        for events in (on_gpus, on_cpus):
            if found := list(itertools.islice(events, MOST_EVENTS + 1)):
                break
    except UnicodeDecodeError as error:
        raise InputError(f"the profile is damaged, a name in it is no text: {error}") from None
    if len(found) > MOST_EVENTS:
        raise InputError(_too_many("this process"))
    return found


def _too_many(where: object) -> str:
    return (
        f"{where} recorded more than {MOST_EVENTS:,} kernels: record fewer steps, or give the file "
        "of one host"
    )


def _gpu_events(plane: Any) -> Iterator[RecordedEvent]:
    device = _number_of(plane.name)
    for line in plane.lines:
        if line.name.startswith(STREAM):
            for event in line.events:
                stats, kernel = dict(event.stats), event.name
                if "hlo_op" in stats or not kernel.startswith(COPIES):
                    times = event.start_ns * NANOSECOND, event.duration_ns * NANOSECOND
                    yield _event(stats, device, line.name, times, kernel)


def _number_of(plane: str) -> int:
    """3 of `/device:GPU:3` and of `/device:GPU:3 (details)`."""
    digits = plane.removeprefix(GPU_PLANE).split()[:1]
    if not digits or not digits[0].isdecimal():
        return 0
    number = int(digits[0]) if is_count(digits[0]) else digits[0]
    return _counted(number, "the number of a device", 0, MOST_ORDINAL)


def _counted(value: Any, name: str, least: int, most: int) -> int:
    """The value if it is a whole number within the limits, else InputError."""
    if not isinstance(value, int) or not least <= value <= most:
        said = f"{name} is {value!r:.40}, not a whole number from {least} to {most}"
        raise InputError(f"the profile is damaged: {said}")
    return value


def _cpu_events(plane: Any) -> Iterator[RecordedEvent]:
    started: list[tuple[Any, dict[str, Any], str]] = []
    ended: dict[int, float] = {}
    for line in plane.lines:
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats and "device_ordinal" in stats:
                started.append((event, stats, line.name))
            elif event.name.startswith(ENDED) and "_c" in stats:
                ended[stats["_c"]] = event.start_ns
    for event, stats, thread in started:
        end = ended.get(stats.get("_p", 0), event.start_ns + event.duration_ns)
        device = _counted(stats["device_ordinal"], "device_ordinal", 0, MOST_ORDINAL)
        times = event.start_ns * NANOSECOND, (end - event.start_ns) * NANOSECOND
        found = _event(stats, device, thread, times)
        yield replace(found, run=_counted(stats.get("run_id", 0), "run_id", -(2**63), 2**64))


def _event(
    stats: Mapping[str, Any],
    device: int,
    stream: str,
    times: tuple[float, float],
    kernel: str = "",
) -> RecordedEvent:
    """An event with the stats that were recorded with it; `times` are its start and duration."""
    name = str(stats.get("hlo_op", "")).split(NESTING)[-1]
    if name.startswith(BUFFER):  # many instructions
        name = ""
    start, duration = times
    module = str(stats.get("hlo_module", ""))
    return RecordedEvent(device, stream, name, module, start, max(duration, 0.0), kernel=kernel)


def _trace_events(file: Path) -> list[RecordedEvent]:
    """The events of a trace in JSON: of GPUs only."""
    records = list(device_records(read_trace(file), file))
    found = []
    for process, thread, event in records:
        on_gpu = process.startswith(GPU_PLANE) and thread.startswith(STREAM)
        if on_gpu and ("hlo_op" in event["args"] or not event["name"].startswith(COPIES)):
            times = event["ts"] * MICROSECOND, event["dur"] * MICROSECOND
            place = _number_of(process), thread
            found.append(_event(event["args"], *place, times, event["name"]))
    if not found and any("device_ordinal" in r.event["args"] for r in records):
        raise InputError(f"{file} is of CPU devices: give the {XPLANE} beside it, which says more")
    return found


def _read(file: Path) -> Any:
    import jax

    try:
        return jax.profiler.ProfileData.from_file(str(file))
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"{file} is not a profile that jax reads: {error}") from None
