"""A recorded profile, read: which instruction of which program ran when, on which device.

    DIR/plugins/profile/2026_01_31_12_00_00/HOST.xplane.pb      one file per process
      /device:GPU:0                a plane per GPU
        Stream #14(Compute)        a line per stream: kernels, with the stats hlo_op and hlo_module
      /host:CPU                    one plane for all CPU devices
        tf_XLAEigen/...            a line per thread: operations, with device_ordinal and run_id too

On the CPU an operation is recorded twice: where it started, and as `end: NAME` where it was over,
perhaps on another thread (a collective, a loop). The stats `_p` and `_c` join the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError

NANOSECOND = 1e-9
HOST_PLANE, GPU_PLANE = "/host:CPU", "/device:GPU:"
STREAM = "Stream"  # how the lines of a GPU plane that are streams begin
ENDED = "end: "  # prefix of the second record
NESTING = "::"  # between the names of nested annotations in hlo_op; the innermost is last
RECORD = "record one with `scaling train ... --record-profile 10:12`"


@dataclass(frozen=True)
class RecordedEvent:
    """One execution of one instruction on one device; seconds since the recording began."""

    device: int
    stream: str  # of the GPU, or thread of the CPU
    name: str  # of the HLO instruction
    module: str  # of the HLO module: jit_step
    start: float
    duration: float  # on the CPU with all waiting, for other devices and for a free core
    run: int | None = None  # which execution of the module; None: not recorded (GPUs)

    @property
    def end(self) -> float:
        """Seconds since the recording began."""
        return self.start + self.duration


def recorded_events(folder: Path) -> list[RecordedEvent]:
    """Everything of compiled programs in the newest recording below `folder`, by start.

    The devices of several processes are counted on, in the order of their files' names; the clocks
    of two processes are not the same.

    Raises:
        InputError: no recording, an unreadable one, or one without a single instruction.
    """
    events: list[RecordedEvent] = []
    for file in profile_files(folder):
        before = 1 + max((event.device for event in events), default=-1)
        events += [replace(e, device=e.device + before) for e in events_of(_read(file))]
    if not events:
        raise InputError(
            f"the profile in {folder} holds no instruction of a compiled program on a GPU or a CPU "
            f"device: {RECORD}, of steps that the run still takes"
        )
    return sorted(events, key=lambda event: event.start)


def profile_files(folder: Path) -> list[Path]:
    """The files of the newest recording below `folder`, one per process.

    Raises:
        InputError: there is none.
    """
    files = list(folder.glob("**/*.xplane.pb"))
    if not files:
        raise InputError(f"no profile in {folder}: {RECORD}")
    newest = max(files, key=lambda file: (file.stat().st_mtime, str(file)))
    return sorted(newest.parent.glob("*.xplane.pb"))


def events_of(profile: Any) -> list[RecordedEvent]:
    """The events of one process, from its `jax.profiler.ProfileData`."""
    events: list[RecordedEvent] = []
    for plane in profile.planes:
        if plane.name.startswith(GPU_PLANE):
            events += _gpu_events(plane)
        elif plane.name == HOST_PLANE:
            events += _cpu_events(plane)
    return events


def _gpu_events(plane: Any) -> Iterator[RecordedEvent]:
    device = int(plane.name.removeprefix(GPU_PLANE).split()[0])
    for line in plane.lines:
        if line.name.startswith(STREAM):
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    yield _event(event, stats, device, line.name, event.duration_ns)


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
        device = int(stats["device_ordinal"])
        yield _event(event, stats, device, thread, end - event.start_ns)


def _event(
    event: Any, stats: dict[str, Any], device: int, stream: str, nanoseconds: float
) -> RecordedEvent:
    return RecordedEvent(
        device=device,
        stream=stream,
        name=str(stats["hlo_op"]).split(NESTING)[-1],
        module=str(stats.get("hlo_module", "")),
        start=event.start_ns * NANOSECOND,
        duration=max(nanoseconds, 0.0) * NANOSECOND,
        run=stats.get("run_id"),
    )


def _read(file: Path) -> Any:
    import jax

    try:
        return jax.profiler.ProfileData.from_file(str(file))
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"{file} is not a profile that jax reads: {error}") from None
