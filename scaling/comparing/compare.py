"""Predicted against measured: a run's folder, or any program beside a recorded profile.

Of a run's folder, step time and memory come from what the trainer measured in every step; terms
and collectives from a recorded profile of some steps, joined with the program by the names of its
instructions.

Of a profile alone, the measured step is the time from the first recorded event to the last, over
the number of steps: gaps between steps are in it, as time that the device waits for its host. A
collective's time is that of its kernels, the waiting for slower devices included.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from scaling.analytic.program import closed_form
from scaling.comparing.classes import CLASSES, class_of
from scaling.comparing.comparison import (
    SHARED_CORES,
    SUMMED,
    CollectivePair,
    Comparison,
    KernelPair,
    Pair,
    StepPair,
)
from scaling.comparing.documents import MeasuredFile, MemoryFile, PredictedFile, StepTimeFile
from scaling.comparing.doubts import doubts
from scaling.comparing.folder import RunFolder, priced_again
from scaling.comparing.matching import match_recording
from scaling.comparing.recorded import RecordedEvent, recorded_events
from scaling.comparing.steps import Measured, Recording, known_operations, longest
from scaling.meshes.errors import InputError
from scaling.meshes.shape import axes_text, longer
from scaling.meshes.units import format_time
from scaling.program.ir import COLLECTIVE_KINDS, Kernel, Number, Program, collectives
from scaling.run import Run
from scaling.simulate.prediction import TERMS, Prediction, axis_name
from scaling.simulate.resolve import HOST
from scaling.simulate.step import Priced, price

UNEVEN = 0.02  # of the priced load of experts, chosen by this project: a smaller difference is none


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
    warnings = *found.warnings, *_uneven_load(files, priced)
    return replace(found, priced=priced, events=tuple(events), warnings=warnings)


def _uneven_load(files: RunFolder, priced: Priced) -> Iterator[str]:
    """The measured load of the busiest device along `expert`, where another one was priced, with
    what it costs by the closed form."""
    run, skew = files.run, files.skew
    if not isinstance(run, Run) or run.mesh is None or run.model.moe is None or skew is None:
        return
    moe, mesh = run.model.moe, run.mesh
    if moe.capacity_factor is not None or abs(skew - moe.skew) < UNEVEN * moe.skew:
        return

    def seconds(skew: float) -> float:
        model = replace(run.model, moe=replace(moe, skew=skew))
        program = closed_form(replace(run, model=model), mesh, priced.cluster)
        return float(price(program, priced.cluster, priced.profile).timeline.total)

    text = (
        f"the busiest device along expert multiplied {skew:.3g} times the mean of rows (median of "
        f"the steps), priced were {moe.skew:g}"
    )
    with suppress(InputError):  # the closed form has no such step
        more = seconds(skew) - seconds(moe.skew)
        words = f"{format_time(abs(more))} {'more' if more >= 0 else 'less'}"
        text += f": {words} a step by the closed form (--set model.moe.skew={skew:.3g})"
    yield text


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
    seconds = predicted_seconds or {}
    joined = _joined(prediction.time, program, seconds, recording, not is_host)
    found = _comparison(prediction, measured, joined)
    warnings = (SHARED_CORES,) if is_host and recording else ()
    return replace(found, setting=prediction.setting, warnings=warnings)


def compare_recording(
    prediction: Prediction, priced: Priced, events: Sequence[RecordedEvent], steps: int | None
) -> Comparison:
    """Join a prediction with a recorded profile of the same program, perhaps compiled otherwise.

    Args:
        steps: that were recorded; None: counted.

    Raises:
        InputError: a recording of another program or machine, or of fewer steps.
    """
    program, cluster = priced.program, priced.cluster
    check_machine(events, cluster.name)
    recording = match_recording(events, program, steps)
    is_host = cluster.name == HOST
    measured = MeasuredFile(
        name=prediction.name,
        machine=f"{recording.devices} x {'CPU device' if is_host else 'GPU'}, recorded",
        versions={},
        step_time=StepTimeFile(sum(recording.terms[t] for t in SUMMED), None, recording.steps),
        memory=MemoryFile(None, program.compiler_peak),
        recorded_steps=None,
    )
    joined = _joined(vars(prediction.time), program, _seconds(priced), recording, not is_host)
    found = _comparison(prediction, measured, joined)
    match = replace(recording, match=found.match)
    notes = doubts(match, found.step_time.seconds, prediction.devices, program.module, steps)
    axes = axes_text(longer(program.mesh)) or "one device"
    return replace(
        found,
        setting=f"mesh {axes} of {cluster.name}",
        warnings=(SHARED_CORES,) * is_host + tuple(notes),
        priced=priced,
        events=tuple(events),
    )


def _comparison(
    prediction: PredictedFile | Prediction, measured: MeasuredFile, joined: Mapping[str, Any]
) -> Comparison:
    """The figures of whole steps, and those by instruction, which are `joined`."""
    step, high = measured.step_time, prediction.step_time_high
    times = Pair(float(prediction.step_time), step.measured)
    return Comparison(
        name=prediction.name,
        machine=measured.machine,
        versions=measured.versions,
        step_time=StepPair(times, step.spread, step.steps),
        step_range=(float(prediction.step_time_low), math.inf if high is None else float(high)),
        memory=Pair(float(prediction.memory.peak), measured.memory.measured),
        compiled_memory=measured.memory.compiled,
        grade=prediction.grade,
        **joined,
    )


def _seconds(priced: Priced) -> dict[str, float]:
    """Predicted seconds of all calls of each instruction in one step, by name."""
    return {name: float(time) for name, time in priced.timeline.by_name.items()}


def _joined(
    time: Mapping[str, Number],
    program: Program | None,
    seconds: Mapping[str, float],
    recording: Recording | None,
    comparable: bool,
) -> dict[str, Any]:
    """The fields of a `Comparison` that the names of instructions tell.

    Args:
        comparable: False for devices that share the cores of one machine.
    """
    terms = recording.terms if recording else {}
    seen = recording.instructions if recording else {}
    pairs = {
        name: Pair(seconds.get(name), seen[name].seconds if name in seen else None, comparable)
        for name in (dict(seconds) | dict.fromkeys(seen))
    }
    found: dict[str, Any] = {
        "time": {t: Pair(float(time[t]), terms.get(t), comparable) for t in TERMS}
    }
    found["collectives"] = _collectives(program, pairs, seen) if program else ()
    if program and recording:
        others = {name: Pair(None, s) for name, s in recording.others.items()}
        known = known_operations(program)
        classes: dict[str, list[Pair]] = {}
        every = [*pairs.values(), *others.values()]
        for name, step in known.items():
            classes.setdefault(class_of(step), []).append(pairs.get(name, Pair(None, None)))
        for name, pair in others.items():
            classes.setdefault(name, []).append(pair)
        computing = [pair for name, pair in pairs.items() if isinstance(known.get(name), Kernel)]
        computing += [pair for name, pair in others.items() if name not in COLLECTIVE_KINDS]
        found["sums"] = {  # over all devices
            "kernels": _total(computing, recording.devices),
            "kernels and collectives": replace(_total(every, recording.devices), comparable=True),
        }
        found["classes"] = {name: _total(classes[name]) for name in CLASSES if name in classes}
        kernels = [
            KernelPair(n, f"{k.origin.phase} {k.origin.layer}".strip(), seen[n].calls, pairs[n])
            for n, k in known.items()
            if isinstance(k, Kernel) and n in seen
        ]
        off = lambda pair: abs((pair.predicted or 0.0) - (pair.measured or 0.0))
        found["kernels"] = tuple(sorted(kernels, key=lambda kernel: -off(kernel.seconds)))
        if recording.match:
            absent = {name: s for name, s in seconds.items() if name not in seen and s > 0}
            found["match"] = replace(recording.match, predicted_only=longest(absent))
    return found


def _collectives(
    program: Program, pairs: Mapping[str, Pair], seen: Mapping[str, Measured]
) -> tuple[CollectivePair, ...]:
    """Identical collectives as one, the longest first."""
    merged: dict[tuple[str, str, float], dict[str, tuple[Pair, Pair]]] = {}
    for step, calls in collectives(program):
        if step.axes or step.groups:
            size, recorded = float(step.bytes), seen.get(step.name)
            moved = Pair(size * float(calls), size * recorded.calls if recorded else None)
            alike = merged.setdefault((step.kind, axis_name(step), size), {})
            alike[step.name] = pairs.get(step.name, Pair(None, None)), moved
    found = [
        CollectivePair(
            *key,
            _total(seconds for seconds, _ in alike.values()),
            _total(moved for _, moved in alike.values()),
            {name: seconds for name, (seconds, _) in alike.items()},
        )
        for key, alike in merged.items()
    ]
    return tuple(sorted(found, key=lambda pair: -(pair.seconds.predicted or 0.0)))


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
