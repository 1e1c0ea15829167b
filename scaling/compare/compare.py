"""Predicted against measured: step time, terms, collectives, memory; the difference named.

    error = predicted / measured - 1

Step time and memory come from what the trainer measured in every step; terms and collectives from
a recorded profile of some steps, joined with the program by the names of its instructions. What was
not measured is None.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scaling.compare.documents import MeasuredFile, PredictedFile
from scaling.compare.terms import TERMS, Recording
from scaling.program.ir import Collective, Kernel, Program, collectives, kernels
from scaling.simulate.prediction import axis_name
from scaling.simulate.resolve import HOST


@dataclass(frozen=True)
class Pair:
    """One figure, predicted and measured."""

    predicted: float | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None where either is missing or nothing was measured."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class CollectivePair:
    """All calls of one collective in one step, seconds."""

    kind: str
    axis: str
    bytes: float  # of one call
    seconds: Pair


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
    machine: str
    versions: Mapping[str, str]
    step_time: StepPair
    time: Mapping[str, Pair]
    collectives: tuple[CollectivePair, ...]
    kernels: tuple[KernelPair, ...]
    memory: Pair
    compiled_memory: float | None  # bytes, as the compiler planned them for one device
    grade: str
    virtual: bool = False  # whether the devices share the cores of this machine


def compare(
    prediction: PredictedFile,
    measured: MeasuredFile,
    program: Program | None = None,
    predicted_seconds: Mapping[str, float] | None = None,
    recording: Recording | None = None,
) -> Comparison:
    """Join a prediction with a measurement.

    Args:
        prediction: predicted.json.
        measured: measured.json.
        program: the program that was predicted; without it no kernels and collectives.
        predicted_seconds: all calls of each instruction in one step, by name.
        recording: of the same program; None: terms and collectives stay unmeasured.
    """
    terms, seconds = recording.terms if recording else {}, predicted_seconds or {}
    found, memory = measured.step_time, measured.memory
    return Comparison(
        name=prediction.name,
        machine=measured.machine,
        versions=measured.versions,
        step_time=StepPair(Pair(prediction.step_time, found.measured), found.spread, found.steps),
        time={term: Pair(getattr(prediction.time, term), terms.get(term)) for term in TERMS},
        collectives=_collectives(program, seconds, recording),
        kernels=_kernels(program, seconds, recording),
        memory=Pair(prediction.memory.peak, memory.measured),
        compiled_memory=memory.compiled,
        grade=prediction.grade,
        virtual=prediction.cluster.name == HOST,
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
        "collectives": [
            {"kind": c.kind, "axis": c.axis, "bytes": c.bytes} | _pair(c.seconds)
            for c in comparison.collectives
        ],
        "kernels": [
            {"name": k.name, "origin": k.origin, "calls": k.calls} | _pair(k.seconds)
            for k in comparison.kernels
        ],
        "memory": _pair(comparison.memory) | {"compiled": comparison.compiled_memory},
        "grade": comparison.grade,
    }


def _collectives(
    program: Program | None, predicted: Mapping[str, float], recording: Recording | None
) -> tuple[CollectivePair, ...]:
    """Identical collectives as one, the dearest first."""
    if program is None:
        return ()
    merged: dict[tuple[str, str, float], list[Pair]] = {}
    for name, collective in _each_collective(program).items():
        key = (collective.kind, axis_name(collective), float(collective.bytes))
        seen = recording.instructions.get(name) if recording else None
        pair = Pair(predicted.get(name), seen.seconds if seen else None)
        merged.setdefault(key, []).append(pair)
    pairs = [
        CollectivePair(*key, Pair(_sum(p.predicted for p in all_), _sum(p.measured for p in all_)))
        for key, all_ in merged.items()
    ]
    return tuple(sorted(pairs, key=lambda c: -(c.seconds.predicted or 0.0)))


def _each_collective(program: Program) -> dict[str, Collective]:
    return {c.name: c for c, _ in collectives(program) if c.axes or c.groups}


def _kernels(
    program: Program | None, predicted: Mapping[str, float], recording: Recording | None
) -> tuple[KernelPair, ...]:
    """Every kernel that was recorded, the largest difference first."""
    if program is None or recording is None:
        return ()
    each: dict[str, Kernel] = {kernel.name: kernel for kernel, _ in kernels(program)}
    found = []
    for name, kernel in each.items():
        seen = recording.instructions.get(name)
        if seen is not None:
            origin = f"{kernel.origin.phase} {kernel.origin.layer}".strip()
            found.append(
                KernelPair(name, origin, seen.calls, Pair(predicted.get(name), seen.seconds))
            )
    return tuple(sorted(found, key=lambda kernel: -_difference(kernel.seconds)))


def _difference(pair: Pair) -> float:
    return abs((pair.predicted or 0.0) - (pair.measured or 0.0))


def _sum(values: Any) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _pair(pair: Pair) -> dict[str, float | None]:
    return asdict(pair) | {"error": pair.error}
