"""Notes on what differs between a recorded profile and the program that it is compared with."""

from collections.abc import Iterator, Mapping

from scaling.comparing.comparison import Pair
from scaling.comparing.steps import Recording
from scaling.meshes.units import format_time

WORTH_SAYING = 0.02  # of the step: what does not match below this is not mentioned
UNEQUAL = 0.1  # of the step, by this project: devices that wait for each other differ by less


def doubts(
    recording: Recording, step: Pair, devices: int, module: str, said: int | None
) -> Iterator[str]:
    """Notes on what differs between the profile and the program.

    `step`: its seconds; `said`: steps, by the caller.
    """
    assert recording.match is not None  # of a profile of any program
    match = recording.match
    measured, absent = step.measured or 0.0, sum(match.predicted_only.values())
    spread = match.slowest_device - match.fastest_device
    share, recorded = f"{match.share:.0%}", match.module or "the profile"
    if match.by_name and match.module and module not in ("", match.module):
        yield (
            f"{match.module} was recorded and {module} is priced, whose instructions are called "
            "alike"
        )
    if not match.by_name:
        yield (
            f"only {share} of the device time of {recorded} is in instructions of this program, so "
            "it is another one of that name, or was compiled otherwise (flags, version of jax, "
            "autotuning): classes are compared, and no single kernels, and names that recur tell "
            "the steps (a dump of the run itself would match)"
        )
    elif match.share < 1 - WORTH_SAYING:
        yield (
            f"{share} of the device time of {recorded} is in instructions of this program; the "
            f"rest is in the classes that its names tell{_names(match.recorded_only)}"
        )
    if match.by_order:
        yield (
            f"{len(match.by_order)} collectives are joined by kind and order, for their names "
            "differ"
        )
    if match.by_name and absent > WORTH_SAYING * (step.predicted or 0.0):
        yield (
            f"instructions predicted to take {format_time(absent)} were not recorded"
            f"{_names(match.predicted_only)}"
        )
    if match.between > WORTH_SAYING * measured:
        yield (
            f"between two steps a device waits {format_time(match.between)} for its host (data, "
            "logging, results that are waited for), which is in the measured step"
        )
    if match.without > WORTH_SAYING * measured:
        yield (
            f"kernels of no instruction take {format_time(match.without)} a step, and are left out"
        )
    if spread > UNEQUAL * measured:
        yield (
            f"a step takes {format_time(match.fastest_device)} to "
            f"{format_time(match.slowest_device)} on the devices that were recorded, and what is "
            "measured is their mean"
        )
    if recording.devices > devices:
        yield (
            f"{recording.devices} devices were recorded, the program is of {devices}: "
            "is it of another mesh?"
        )
    if said is not None and match.counted not in (None, said):
        yield f"the instructions that run in each step tell of {match.counted} steps, not of {said}"


def _names(seconds: Mapping[str, float]) -> str:
    names = list(seconds)[:3]
    return f": {', '.join(names)}" + (" ..." if len(seconds) > len(names) else "")
