"""Predicted against measured: step time, terms, collectives, memory; the difference named.

    error = predicted / measured - 1

Step time and memory come from what the trainer measured in every step; terms and collectives from
a recorded profile of some steps, joined with the program by the names of its instructions. What was
not measured is None.

Devices of a CPU share its cores: while one waits in a collective, the others compute faster than
they were priced to. Terms, single kernels and single collectives have no error there; the step
time, sums of seconds over all kernels and collectives, and bytes do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scaling.compare.documents import MeasuredFile, PredictedFile
from scaling.compare.terms import TERMS, Recording
from scaling.program.ir import Collective, Kernel, Number, Program, collectives, kernels
from scaling.simulate.prediction import axis_name
from scaling.simulate.resolve import HOST

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

    @property
    def shares_cores(self) -> bool:
        """True if the devices share the cores of one machine."""
        return SHARED_CORES in self.warnings


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
    time = {t: Pair(getattr(prediction.time, t), terms.get(t), not is_host) for t in TERMS}
    return Comparison(
        name=prediction.name,
        setting=prediction.setting,
        machine=measured.machine,
        versions=measured.versions,
        step_time=StepPair(Pair(prediction.step_time, step.measured), step.spread, step.steps),
        step_range=(prediction.step_time_low, prediction.step_time_high),
        time=time,
        sums=_sums(program, pairs, recording),
        collectives=_collectives(program, pairs, recording),
        kernels=_kernels(program, pairs, recording),
        memory=Pair(prediction.memory.peak, memory.measured),
        compiled_memory=memory.compiled,
        grade=prediction.grade,
        warnings=(SHARED_CORES,) if is_host and recording else (),
    )


def comparison_dict(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON has it."""
    step = comparison.step_time
    return {
        "name": comparison.name,
        "machine": comparison.machine,
        "versions": dict(comparison.versions),
        "step_time": _pair(step.seconds) | {"spread": step.spread, "steps": step.steps},
        "time": {term: _pair(pair) for term, pair in comparison.time.items()},
        "sums": {name: _pair(pair) for name, pair in comparison.sums.items()},
        "collectives": [
            {"kind": c.kind, "axis": c.axis, "bytes": c.bytes}
            | _pair(c.seconds)
            | {"step_bytes": _pair(c.step_bytes)}
            for c in comparison.collectives
        ],
        "kernels": [
            {"name": k.name, "origin": k.origin, "calls": k.calls} | _pair(k.seconds)
            for k in comparison.kernels
        ],
        "memory": _pair(comparison.memory) | {"compiled": comparison.compiled_memory},
        "grade": comparison.grade,
        "warnings": list(comparison.warnings),
    }


def _sums(
    program: Program | None, pairs: Mapping[str, Pair], recording: Recording | None
) -> dict[str, Pair]:
    """Seconds of one step over all devices: of all kernels, and of all instructions."""
    if program is None or recording is None:
        return {}
    names = {kernel.name for kernel, _ in kernels(program)}
    computing = _total(pair for name, pair in pairs.items() if name in names)
    everything = replace(_total(pairs.values()), comparable=True)
    sums = {"kernels": computing, "kernels and collectives": everything}
    times = lambda seconds: seconds and recording.devices * seconds
    return {
        name: replace(pair, predicted=times(pair.predicted), measured=times(pair.measured))
        for name, pair in sums.items()
    }


def _collectives(
    program: Program | None, pairs: Mapping[str, Pair], recording: Recording | None
) -> tuple[CollectivePair, ...]:
    """Identical collectives as one, the longest first."""
    if program is None:
        return ()
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
    program: Program | None, pairs: Mapping[str, Pair], recording: Recording | None
) -> tuple[KernelPair, ...]:
    """Every kernel that was recorded, the largest difference first."""
    if program is None or recording is None:
        return ()
    each: dict[str, Kernel] = {kernel.name: kernel for kernel, _ in kernels(program)}
    found = [
        KernelPair(name, f"{k.origin.phase} {k.origin.layer}".strip(), seen.calls, pairs[name])
        for name, k in each.items()
        if (seen := recording.instructions.get(name)) is not None
    ]
    off = lambda pair: abs((pair.predicted or 0.0) - (pair.measured or 0.0))
    return tuple(sorted(found, key=lambda kernel: -off(kernel.seconds)))


def _total(pairs: Iterable[Pair]) -> Pair:
    """The sum of what is known on either side."""
    each = list(pairs)
    predicted = [pair.predicted for pair in each if pair.predicted is not None]
    measured = [pair.measured for pair in each if pair.measured is not None]
    return Pair(
        sum(predicted) if predicted else None,
        sum(measured) if measured else None,
        all(pair.comparable for pair in each),
    )


def _pair(pair: Pair) -> dict[str, float | None]:
    return {"predicted": pair.predicted, "measured": pair.measured, "error": pair.error}
