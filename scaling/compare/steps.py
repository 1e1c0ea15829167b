"""Recorded events to figures of one step: seconds per instruction, and totals per device.

    compute         ######    ####   ##
    communication      ********    *********
    exposed                ****    ***  ****       = |union of all| - |union of compute|

Times of a set of events are the length of the union of their intervals, never the sum. Loops,
branches and calls are recorded around what they run and are left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scaling.compare.recorded import RecordedEvent
from scaling.meshes.errors import InputError

# Instructions that run other instructions; jax names a conditional "cond".
CONTAINER = re.compile(r"(while|cond|conditional|call)(\.|$)")
MATCHED = 0.5  # of the recorded device time; below it, the recording is of another program


@dataclass(frozen=True)
class Measured:
    """One instruction in one step, the mean over devices and steps."""

    calls: float  # executions; on GPUs kernels, of which an instruction may need several
    seconds: float  # sum over the calls


@dataclass(frozen=True)
class Totals:
    """Seconds of one step, the mean over devices and steps."""

    span: float  # from the first start to the last end
    busy: float  # something runs
    compute: float
    communication: float
    exposed_communication: float  # communication while nothing computes


def events_of_program(
    events: Iterable[RecordedEvent], names: Collection[str]
) -> list[RecordedEvent]:
    """The events of the instructions `names` in the module that spent most time on them.

    Raises:
        InputError: more than half of that module's recorded device time is of other instructions.
    """
    known = frozenset(names)
    leaves = [event for event in events if not CONTAINER.match(event.name)]
    by_module: dict[str, list[RecordedEvent]] = defaultdict(list)
    for event in leaves:
        by_module[event.module].append(event)
    matching = lambda module: [e for e in by_module[module] if e.name in known]
    best = max(by_module, key=lambda module: _sum(matching(module)), default="")
    found, total = matching(best), _sum(by_module[best])
    if _sum(found) < MATCHED * total or not found:
        raise InputError(_another_program(best, found, by_module[best], len(known)))
    return found


def complete_steps(events: Iterable[RecordedEvent], steps: int) -> list[RecordedEvent]:
    """The last `steps` executions of a program; what was recorded of one before is left out.

    A recording begins while the step before may still run. Where executions are numbered (CPU) the
    last ones are kept; elsewhere (GPU) the end of that earlier step is found by its last
    instruction, which is seen once too often.

    Raises:
        InputError: fewer steps were recorded.
    """
    kept: list[RecordedEvent] = []
    for device_events in _by_device(events).values():
        if device_events[0].run is None:
            kept += _after_the_first_end(device_events, steps)
        else:
            kept += _last_runs(device_events, steps)
    return kept


def per_step(events: Sequence[RecordedEvent], steps: int) -> dict[str, Measured]:
    """Instruction name -> calls and seconds in one step, of events of `steps` complete steps."""
    durations: dict[str, list[float]] = defaultdict(list)
    for event in events:
        durations[event.name].append(event.duration)
    count = steps * len({event.device for event in events})
    return {name: Measured(len(d) / count, sum(d) / count) for name, d in durations.items()}


def totals(events: Iterable[RecordedEvent], steps: int, communicating: Collection[str]) -> Totals:
    """Totals of one step, of events of `steps` whole steps.

    Args:
        communicating: names of the instructions that move data between devices.
    """
    each = []
    for device_events in _by_device(events).values():
        compute = [e for e in device_events if e.name not in communicating]
        communication = [e for e in device_events if e.name in communicating]
        busy, computing = union(device_events), union(compute)
        span = max(e.end for e in device_events) - device_events[0].start
        each.append((span, busy, computing, union(communication), busy - computing))
    means = np.mean(each, axis=0) / steps if each else np.zeros(5)
    return Totals(*map(float, means))


def union(events: Sequence[RecordedEvent]) -> float:
    """Seconds in which at least one of the events runs."""
    if not events:
        return 0.0
    spans = np.array(sorted((e.start, e.end) for e in events))
    covered = np.maximum.accumulate(spans[:, 1])[:-1]  # up to here, by those that started before
    begin = np.maximum(spans[1:, 0], covered)
    rest = np.maximum(spans[1:, 1] - begin, 0.0).sum()
    return float(spans[0, 1] - spans[0, 0] + rest)


def _by_device(events: Iterable[RecordedEvent]) -> dict[int, list[RecordedEvent]]:
    devices: dict[int, list[RecordedEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.start):
        devices[event.device].append(event)
    return dict(sorted(devices.items()))


def _last_runs(events: list[RecordedEvent], steps: int) -> list[RecordedEvent]:
    runs = list(dict.fromkeys(event.run for event in events))
    _check_enough(len(runs), steps)
    wanted = frozenset(runs[-steps:])
    return [event for event in events if event.run in wanted]


def _after_the_first_end(events: list[RecordedEvent], steps: int) -> list[RecordedEvent]:
    last = max(events, key=lambda e: e.end).name
    ends = [event.end for event in events if event.name == last]
    _check_enough(len(ends), steps)
    if len(ends) % steps == 0:
        return events
    surplus = len(ends) // (steps + 1)  # its kernels in one step
    return [event for event in events if event.start >= ends[surplus - 1]]


def _check_enough(found: int, steps: int) -> None:
    if found < steps:
        raise InputError(f"the profile holds {found} steps of the program, not {steps}")


def _sum(events: Iterable[RecordedEvent]) -> float:
    return sum(event.duration for event in events)


def _another_program(
    module: str, found: list[RecordedEvent], recorded: list[RecordedEvent], known: int
) -> str:
    others = Counter(e.name for e in recorded)
    for event in found:
        others.pop(event.name, None)
    share = _sum(found) / (_sum(recorded) or 1.0)
    examples = ", ".join(name for name, _ in others.most_common(3))
    return (
        f"the profile is of another program: of the device time of {module or 'no module'}, "
        f"{share:.0%} is spent in the {known} instructions of this one (others: {examples}). Was "
        "the run recorded with another mesh, batch, model or version of jax?"
    )
