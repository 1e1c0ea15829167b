"""Predicted against measured: step time, terms, collectives, memory; the difference named.

    error = predicted / measured - 1

Step time and memory come from what the trainer measured in every step; terms and collectives from
a recorded profile of some steps, joined with the program by the names of its instructions. What was
not measured is None.

Devices of a CPU share its cores: while one waits in a collective, the others compute faster than
they were priced to. Terms, single kernels and single collectives have no error there; the step
time, sums of seconds over all kernels and collectives, and bytes do.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scaling.compare.folder import MeasuredFile, PredictedFile, RunFolder, priced_again
from scaling.compare.recorded import RecordedEvent, recorded_events
from scaling.compare.steps import Recording, read_recording
from scaling.program.ir import Collective, Number, Program, collectives, kernels
from scaling.simulate.prediction import TERMS, axis_name
from scaling.simulate.resolve import HOST
from scaling.simulate.step import Priced

SHARED_CORES = (
    "the devices share the cores of one machine: while one waits in a collective, the others "
    "compute faster than priced, so terms, single kernels and single collectives cannot be "
    "compared; the step time, the sums of seconds and the bytes can"
)


@dataclass(frozen=True)
class Pair:
    """One figure, predicted and measured."""

    predicted: float | None
    measured: float | None
    comparable: bool = True

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None where either is missing, zero or not comparable."""
        if self.predicted is None or not self.measured or not self.comparable:
            return None
        return self.predicted / self.measured - 1

    def to_dict(self) -> dict[str, float | None]:
        """The pair as JSON has it."""
        return {"predicted": self.predicted, "measured": self.measured, "error": self.error}


@dataclass(frozen=True)
class CollectivePair:
    """All calls of one collective in one step, seconds."""

    kind: str
    axis: str
    bytes: float  # of one call
    seconds: Pair
    step_bytes: Pair  # of all calls in one step; measured: the recorded calls


@dataclass(frozen=True)
class KernelPair:
    """All calls of one kernel in one step, seconds; `calls` as measured."""

    name: str
    origin: str
    calls: float
    seconds: Pair


@dataclass(frozen=True)
class StepPair:
    """Step time with the spread of what was measured (quartile distance over median)."""

    seconds: Pair
    spread: float | None
    steps: int


@dataclass(frozen=True)
class Comparison:
    """One run, predicted and measured."""

    name: str
    setting: str  # model, mesh and batch, in words
    machine: str
    versions: Mapping[str, str]
    step_time: StepPair
    step_range: tuple[float, float]  # s, as predicted
    time: Mapping[str, Pair]
    sums: Mapping[str, Pair]  # s per step over all devices, of kernels and of all instructions
    collectives: tuple[CollectivePair, ...]
    kernels: tuple[KernelPair, ...]
    memory: Pair
    compiled_memory: float | None  # bytes, as the compiler planned them for one device
    grade: str
    warnings: tuple[str, ...] = ()  # what cannot be compared, and why
    priced: Priced | None = field(default=None, repr=False)  # with events; None: no program
    events: tuple[RecordedEvent, ...] = field(default=(), repr=False)  # recorded, of all devices

    @property
    def shares_cores(self) -> bool:
        """True if the devices share the cores of one machine."""
        return SHARED_CORES in self.warnings

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling compare --json` prints."""
        step = self.step_time
        return {
            "name": self.name,
            "machine": self.machine,
            "versions": dict(self.versions),
            "step_time": step.seconds.to_dict() | {"spread": step.spread, "steps": step.steps},
            "time": {term: pair.to_dict() for term, pair in self.time.items()},
            "sums": {name: pair.to_dict() for name, pair in self.sums.items()},
            "collectives": [
                {"kind": c.kind, "axis": c.axis, "bytes": c.bytes}
                | c.seconds.to_dict()
                | {"step_bytes": c.step_bytes.to_dict()}
                for c in self.collectives
            ],
            "kernels": [
                {"name": k.name, "origin": k.origin, "calls": k.calls} | k.seconds.to_dict()
                for k in self.kernels
            ],
            "memory": self.memory.to_dict() | {"compiled": self.compiled_memory},
            "grade": self.grade,
            "warnings": list(self.warnings),
        }


def compare_run(files: RunFolder) -> Comparison:
    """Price the program of a run folder again, and join it with what was measured.

    Raises:
        InputError: a cluster that is not the one measured on, or a recording of another program.
    """
    if files.missing:
        return compare(files.prediction, files.measured)
    priced, program = priced_again(files), files.program
    assert program is not None
    events, recording = [], None
    if files.recording is not None and files.measured.recorded_steps is not None:
        first, last = files.measured.recorded_steps
        events = recorded_events(files.recording)
        recording = read_recording(events, program, last - first + 1)
    seconds = {name: float(time) for name, time in priced.timeline.by_name.items()}
    found = compare(files.prediction, files.measured, program, seconds, recording)
    return replace(found, priced=priced, events=tuple(events))


def compare(
    prediction: PredictedFile,
    measured: MeasuredFile,
    program: Program | None = None,
    predicted_seconds: Mapping[str, float] | None = None,
    recording: Recording | None = None,
) -> Comparison:
    """Join a prediction with a measurement, and with a recording of the same program.

    `predicted_seconds`: of all calls of each instruction in one step, by name. Without `program`
    there are no kernels and collectives; without `recording` they and the terms are unmeasured.
    """
    terms, seconds = recording.terms if recording else {}, dict(predicted_seconds or {})
    step, memory, is_host = measured.step_time, measured.memory, prediction.cluster.name == HOST
    seen = recording.instructions if recording else {}
    pairs = {
        name: Pair(seconds.get(name), seen[name].seconds if name in seen else None, not is_host)
        for name in (seconds | dict.fromkeys(seen))
    }
    return Comparison(
        name=prediction.name,
        setting=prediction.setting,
        machine=measured.machine,
        versions=measured.versions,
        step_time=StepPair(Pair(prediction.step_time, step.measured), step.spread, step.steps),
        step_range=(prediction.step_time_low, _infinite(prediction.step_time_high)),
        time={t: Pair(prediction.time[t], terms.get(t), not is_host) for t in TERMS},
        sums=_sums(program, pairs, recording) if program and recording else {},
        collectives=_collectives(program, pairs, recording) if program else (),
        kernels=_kernels(program, pairs, recording) if program and recording else (),
        memory=Pair(prediction.memory.peak, memory.measured),
        compiled_memory=memory.compiled,
        grade=prediction.grade,
        warnings=(SHARED_CORES,) if is_host and recording else (),
    )


def _infinite(high: float | None) -> float:
    """The high end of a range; infinite where a file has none."""
    return math.inf if high is None else high


def _sums(program: Program, pairs: Mapping[str, Pair], recording: Recording) -> dict[str, Pair]:
    """Seconds of one step over all devices: of all kernels, and of all instructions."""
    names = {kernel.name for kernel, _ in kernels(program)}
    computing = _total((pair for name, pair in pairs.items() if name in names), recording.devices)
    everything = replace(_total(pairs.values(), recording.devices), comparable=True)
    return {"kernels": computing, "kernels and collectives": everything}


def _collectives(
    program: Program, pairs: Mapping[str, Pair], recording: Recording | None
) -> tuple[CollectivePair, ...]:
    """Identical collectives as one, the longest first."""
    merged: dict[tuple[str, str, float], list[tuple[Pair, Pair]]] = {}
    for collective, calls in collectives(program):
        if collective.axes or collective.groups:
            key = (collective.kind, axis_name(collective), float(collective.bytes))
            seconds = pairs.get(collective.name, Pair(None, None))
            moved = _bytes(collective, calls, recording)
            merged.setdefault(key, []).append((seconds, moved))
    found = [
        CollectivePair(*key, _total(s for s, _ in same), _total(b for _, b in same))
        for key, same in merged.items()
    ]
    return tuple(sorted(found, key=lambda c: -(c.seconds.predicted or 0.0)))


def _bytes(collective: Collective, calls: Number, recording: Recording | None) -> Pair:
    """Bytes of all calls in one step: calls of the program, and calls that were recorded."""
    size = float(collective.bytes)
    seen = recording.instructions.get(collective.name) if recording else None
    return Pair(size * float(calls), size * seen.calls if seen else None)


def _kernels(
    program: Program, pairs: Mapping[str, Pair], recording: Recording
) -> tuple[KernelPair, ...]:
    """Every kernel that was recorded, the largest difference first."""
    found = [
        KernelPair(name, f"{k.origin.phase} {k.origin.layer}".strip(), seen.calls, pairs[name])
        for name, k in {kernel.name: kernel for kernel, _ in kernels(program)}.items()
        if (seen := recording.instructions.get(name)) is not None
    ]
    off = lambda pair: abs((pair.predicted or 0.0) - (pair.measured or 0.0))
    return tuple(sorted(found, key=lambda kernel: -off(kernel.seconds)))


def _total(pairs: Iterable[Pair], times: int = 1) -> Pair:
    """`times` the sum of what is known on either side."""
    each = list(pairs)
    predicted = [pair.predicted for pair in each if pair.predicted is not None]
    measured = [pair.measured for pair in each if pair.measured is not None]
    return Pair(
        times * sum(predicted) if predicted else None,
        times * sum(measured) if measured else None,
        all(pair.comparable for pair in each),
    )
