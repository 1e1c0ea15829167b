"""Predicted against measured: a run's folder, or any program beside a recorded profile.

Of a run's folder, step time and memory come from what the trainer measured in every step; terms
and collectives from a recorded profile of some steps, joined with the program by the names of its
instructions.

Of a profile alone, the measured step is the time from the first recorded event to the last, over
the number of steps: gaps between steps are in it, as time that the device waits for its host. A
collective's time is that of its kernels, the waiting for slower devices included.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scaling.comparing.comparison import SHARED_CORES, SUMMED, Comparison, Pair, StepPair
from scaling.comparing.documents import MeasuredFile, MemoryFile, PredictedFile, StepTimeFile
from scaling.comparing.doubts import doubts
from scaling.comparing.folder import RunFolder, priced_again
from scaling.comparing.join import joined
from scaling.comparing.matching import match_recording
from scaling.comparing.recorded import RecordedEvent, recorded_events
from scaling.comparing.steps import Recording
from scaling.meshes.errors import InputError
from scaling.program.ir import Program
from scaling.simulate.prediction import TERMS, Prediction
from scaling.simulate.resolve import HOST
from scaling.simulate.step import Priced


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
    found = compare(files.prediction, files.measured, program, _seconds(priced), recording)
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
    is_host = prediction.cluster.name == HOST
    parts = joined(prediction.time, program, predicted_seconds or {}, recording, not is_host)
    warnings = (SHARED_CORES,) if is_host and recording else ()
    return _comparison(prediction, prediction.setting, measured, parts, warnings)


def compare_recording(
    prediction: Prediction, priced: Priced, events: Sequence[RecordedEvent], steps: int | None
) -> Comparison:
    """Join a prediction with a recorded profile of the same program, perhaps compiled otherwise.

    Args:
        priced: what was predicted, with every event.
        steps: that were recorded; None: counted.

    Raises:
        InputError: a recording of another program or machine, or of fewer steps.
    """
    program, cluster = priced.program, priced.cluster
    check_machine(events, cluster.name)
    recording = match_recording(events, program, steps)
    is_host = cluster.name == HOST
    time = {term: float(getattr(prediction.time, term)) for term in TERMS}
    parts = joined(time, program, _seconds(priced), recording, not is_host)
    axes = ",".join(f"{axis}={n}" for axis, n in program.mesh.items() if n > 1) or "one device"
    seconds = sum(recording.terms[term] for term in SUMMED)
    measured = MeasuredFile(
        name=prediction.name,
        machine=f"{recording.devices} x {'CPU device' if is_host else 'GPU'}, recorded",
        versions={},
        step_time=StepTimeFile(seconds, None, recording.steps),
        memory=MemoryFile(None, program.compiler_peak),
        recorded_steps=None,
    )
    step = Pair(float(prediction.step_time), measured.step_time.measured)
    matched = replace(recording, match=parts["match"])
    notes = tuple(doubts(matched, step, prediction.devices, program.module, steps))
    setting, warnings = f"mesh {axes} of {cluster.name}", (SHARED_CORES,) * is_host + notes
    found = _comparison(prediction, setting, measured, parts, warnings)
    return replace(found, priced=priced, events=tuple(events))


def _comparison(
    prediction: PredictedFile | Prediction,
    setting: str,
    measured: MeasuredFile,
    parts: Mapping[str, Any],
    warnings: tuple[str, ...],
) -> Comparison:
    """Return the comparison of a prediction with what was measured; `parts` are of `joined`."""
    step, high = measured.step_time, prediction.step_time_high
    times = Pair(float(prediction.step_time), step.measured)
    return Comparison(
        name=prediction.name,
        setting=setting,
        machine=measured.machine,
        versions=measured.versions,
        step_time=StepPair(times, step.spread, step.steps),
        step_range=(float(prediction.step_time_low), math.inf if high is None else float(high)),
        memory=Pair(float(prediction.memory.peak), measured.memory.measured),
        compiled_memory=measured.memory.compiled,
        grade=prediction.grade,
        warnings=warnings,
        **parts,
    )


def _seconds(priced: Priced) -> dict[str, float]:
    """Predicted seconds of all calls of each instruction in one step, by name."""
    return {name: float(time) for name, time in priced.timeline.by_name.items()}


def check_machine(events: Sequence[RecordedEvent], cluster: str) -> None:
    """Raise InputError if CPU devices were recorded and GPUs are priced, or the other way round."""
    on_cpu = any(event.run is not None for event in events)
    if on_cpu and cluster != HOST:
        raise InputError(
            f"the profile is of CPU devices, the price of {cluster}: record the run on its GPUs, "
            f"or price it with --cluster {HOST}"
        )
    if not on_cpu and cluster == HOST:
        raise InputError(f"the profile is of GPUs, the price of this machine's CPU ({HOST})")
