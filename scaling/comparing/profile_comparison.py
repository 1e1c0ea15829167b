"""The prediction of any program beside a recorded profile of its run.

The measured step is the time from the first recorded event to the last, over the number of steps:
gaps between steps are in it, as time that the device waits for its host. A collective's time is
that of its kernels, the waiting for slower devices included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from scaling.comparing.compare import SHARED_CORES, Comparison
from scaling.comparing.explained import SUMMED
from scaling.comparing.join import joined
from scaling.comparing.matching import match_recording
from scaling.comparing.pairs import Pair, StepPair
from scaling.comparing.recorded import RecordedEvent
from scaling.comparing.steps import Match, Recording
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_time
from scaling.simulate.prediction import TERMS, Prediction
from scaling.simulate.resolve import HOST
from scaling.simulate.step import Priced

WORTH_SAYING = 0.02  # of the step: what does not match below this is not mentioned
UNEQUAL = 0.1  # of the step, by this project: devices that wait for each other differ by less


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
    parts = joined(
        {term: float(getattr(prediction.time, term)) for term in TERMS},
        program,
        {name: float(time) for name, time in priced.timeline.by_name.items()},
        recording,
        not is_host,
    )
    step = Pair(float(prediction.step_time), sum(recording.terms[term] for term in SUMMED))
    matched = replace(recording, match=parts["match"])
    doubts = tuple(_doubts(matched, step, prediction, program.module, steps))
    axes = ",".join(f"{axis}={n}" for axis, n in program.mesh.items() if n > 1) or "one device"
    return Comparison(
        name=prediction.name,
        setting=f"mesh {axes} of {cluster.name}",
        machine=f"{recording.devices} x {'CPU device' if is_host else 'GPU'}, recorded",
        versions={},
        step_time=StepPair(step, None, recording.steps),
        step_range=(float(prediction.step_time_low), float(prediction.step_time_high)),
        memory=Pair(float(prediction.memory.peak), None),
        compiled_memory=program.compiler_peak,
        grade=prediction.grade,
        warnings=(SHARED_CORES,) * is_host + doubts,
        priced=priced,
        events=tuple(events),
        **parts,
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


def _doubts(
    recording: Recording, step: Pair, prediction: Prediction, module: str, said: int | None
) -> Iterator[str]:
    """Notes on what differs between the profile and the program.

    Args:
        step: its seconds.
        module: of the program; "": not known.
        said: steps, by the caller.
    """
    assert recording.match is not None  # of a profile of any program
    match = recording.match
    if match.by_name and match.module and module not in ("", match.module):
        yield (
            f"{match.module} was recorded and {module} is priced, whose instructions are called "
            "alike"
        )
    yield from _of_names(match, step)
    yield from _of_times(match, step)
    if recording.devices > prediction.devices:
        yield (
            f"{recording.devices} devices were recorded, the program is of {prediction.devices}: "
            "is it of another mesh?"
        )
    if said is not None and match.counted not in (None, said):
        yield f"the instructions that run in each step tell of {match.counted} steps, not of {said}"


def _of_names(match: Match, step: Pair) -> Iterator[str]:
    """What has no instruction of the same name on the other side."""
    share, module = f"{match.share:.0%}", match.module or "the profile"
    if not match.by_name:
        yield (
            f"only {share} of the device time of {module} is in instructions of this program, so "
            "it is another one of that name, or was compiled otherwise (flags, version of jax, "
            "autotuning): classes are compared, and no single kernels, and names that recur tell "
            "the steps (a dump of the run itself would match)"
        )
    elif match.share < 1 - WORTH_SAYING:
        yield (
            f"{share} of the device time of {module} is in instructions of this program; the rest "
            f"is in the classes that its names tell{_names(match.recorded_only)}"
        )
    if match.by_order:
        yield (
            f"{len(match.by_order)} collectives are joined by kind and order, for their names "
            "differ"
        )
    absent = sum(match.predicted_only.values())
    if match.by_name and absent > WORTH_SAYING * (step.predicted or 0.0):
        yield (
            f"instructions predicted to take {format_time(absent)} were not recorded"
            f"{_names(match.predicted_only)}"
        )


def _of_times(match: Match, step: Pair) -> Iterator[str]:
    """Seconds of a step that no instruction has, and devices that differ."""
    measured = step.measured or 0.0
    if match.between > WORTH_SAYING * measured:
        yield (
            f"between two steps a device waits {format_time(match.between)} for its host (data, "
            "logging, results that are waited for), which is in the measured step"
        )
    if match.without > WORTH_SAYING * measured:
        yield (
            f"kernels of no instruction take {format_time(match.without)} a step, and are left out"
        )
    fastest, slowest = match.fastest_device, match.slowest_device
    if slowest - fastest > UNEQUAL * measured:
        yield (
            f"a step takes {format_time(fastest)} to {format_time(slowest)} on the devices that "
            "were recorded, and what is measured is their mean"
        )


def _names(seconds: Mapping[str, float]) -> str:
    """The three longest."""
    names = list(seconds)[:3]
    return f": {', '.join(names)}" + (" ..." if len(seconds) > len(names) else "")
