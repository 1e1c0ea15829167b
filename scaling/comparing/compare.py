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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scaling.comparing.explained import explanation
from scaling.comparing.folder import MeasuredFile, PredictedFile, RunFolder, priced_again
from scaling.comparing.join import joined
from scaling.comparing.matching import match_recording
from scaling.comparing.pairs import CollectivePair, KernelPair, Pair, StepPair
from scaling.comparing.recorded import RecordedEvent, recorded_events
from scaling.comparing.steps import Match, Recording
from scaling.program.ir import Program
from scaling.simulate.resolve import HOST
from scaling.simulate.step import Priced

SHARED_CORES = (
    "the devices share the cores of one machine: while one waits in a collective, the others "
    "compute faster than priced, so terms, single kernels and single collectives cannot be "
    "compared; the step time, the sums of seconds and the bytes can"
)


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
    classes: Mapping[str, Pair] = field(default_factory=dict)  # s per step and device, summed
    match: Match | None = None  # of a profile of any program
    priced: Priced | None = field(default=None, repr=False)  # with events; None: no program
    events: tuple[RecordedEvent, ...] = field(default=(), repr=False)  # recorded, of all devices

    @property
    def shares_cores(self) -> bool:
        """True if the devices share the cores of one machine."""
        return SHARED_CORES in self.warnings

    @property
    def explanation(self) -> str:
        """Which terms make up the difference; "" where they were not measured."""
        return explanation(self.time, self.classes, self.collectives)

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
            "classes": {name: pair.to_dict() for name, pair in self.classes.items()},
            "collectives": [c.to_dict() for c in self.collectives],
            "kernels": [k.to_dict() for k in self.kernels],
            "memory": self.memory.to_dict() | {"compiled": self.compiled_memory},
            "grade": self.grade,
            "warnings": list(self.warnings),
            "explanation": self.explanation,
            "match": self.match.to_dict() if self.match else None,
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
        recording = match_recording(events, program, last - first + 1)
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
    step, memory, is_host = measured.step_time, measured.memory, prediction.cluster.name == HOST
    high = prediction.step_time_high
    return Comparison(
        name=prediction.name,
        setting=prediction.setting,
        machine=measured.machine,
        versions=measured.versions,
        step_time=StepPair(Pair(prediction.step_time, step.measured), step.spread, step.steps),
        step_range=(prediction.step_time_low, math.inf if high is None else high),
        memory=Pair(prediction.memory.peak, memory.measured),
        compiled_memory=memory.compiled,
        grade=prediction.grade,
        warnings=(SHARED_CORES,) if is_host and recording else (),
        **joined(prediction.time, program, predicted_seconds or {}, recording, not is_host),
    )
