"""A recording joined with its program: the measured step in the terms of a prediction.

    compute         ######    ####   ##
    communication      ********    *********
    exposed                ****    ***  ****       = |union of all| - |union of compute|

    compute + optimizer + exposed_communication + bubble + host = first start to last end, per step

Times of a set of events are the length of the union of their intervals, never the sum. Loops,
branches and calls are recorded around what they run and are left out.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from scaling.comparing.recorded import RecordedEvent
from scaling.program.ir import Collective, Kernel, Program, operations
from scaling.simulate.pipeline_bubble import bubble_shares
from scaling.simulate.prediction import TERMS

# Instructions that run other instructions; jax names a conditional "cond".
CONTAINER = re.compile(r"(while|cond|conditional|call)(\.|$)")
MATCHED = 0.5  # of the recorded device time; below it, the recording is of another program


@dataclass(frozen=True)
class Measured:
    """One instruction in one step, the mean over devices and steps."""

    calls: float  # executions; on GPUs kernels, of which an instruction may need several
    seconds: float  # sum over the calls


@dataclass(frozen=True)
class Match:
    """How far the names of a recording are those of a program."""

    module: str  # that was recorded
    share: float  # of its recorded device time, in instructions of the program
    by_name: bool  # False: so little that classes are compared, and no single instructions
    by_order: Mapping[str, str]  # collectives joined by kind and order: recorded -> the program's
    recorded_only: Mapping[str, float]  # s per step, the longest first
    without: float  # s per step of kernels that are of no instruction, and left out
    between: float  # s per step that a device waits before the program's first instruction
    counted: int | None  # steps, by the instructions that run in each
    fastest_device: float  # s per step of the device that takes least
    slowest_device: float  # and of the one that takes most
    predicted_only: Mapping[str, float] = field(default_factory=dict)  # s per step, likewise

    def to_dict(self) -> dict[str, Any]:
        """The match as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Recording:
    """Figures of one step in a recorded profile, the mean over devices and steps."""

    instructions: Mapping[str, Measured]  # of the program
    terms: Mapping[str, float]  # seconds, as in TERMS
    devices: int = 1  # that were recorded
    steps: int = 1  # likewise
    others: Mapping[str, float] = field(default_factory=dict)  # class -> seconds of the rest
    match: Match | None = None  # where there may be a rest


def known_operations(program: Program) -> dict[str, Kernel | Collective]:
    """The kernels and collectives of a program by name."""
    found = (step for step, _ in operations(program.schedule))
    return {step.name: step for step in found if isinstance(step, Kernel | Collective)}


def mean_terms(
    events: Sequence[RecordedEvent], program: Program, count: int, other: Collection[str] = ()
) -> tuple[dict[str, float], int]:
    """Seconds of each term in one of `count` complete steps, and the number of devices.

    Instructions that are no kernels move data between devices. `other`: names of kernels that are
    not of the program.
    """
    kernels = {n: k for n, k in known_operations(program).items() if isinstance(k, Kernel)}
    bubble = {n: float(share) for n, share in bubble_shares(program).items() if n in kernels}
    updating = {name for name, step in kernels.items() if step.origin.phase == "optimizer"}
    computing = kernels.keys() | set(other)
    devices, total = by_device(events).values(), dict.fromkeys(TERMS, 0.0)
    for own in devices:
        compute = [event for event in own if event.name in computing]
        optimizer = union([event for event in compute if event.name in updating])
        idle = sum(  # in the ticks of a pipeline's bubble
            share * union([event for event in compute if bubble.get(event.name) == share])
            for share in sorted(set(bubble.values()))
        )
        busy, products = union(own), union(compute)
        exposed = busy - products
        sent = union([event for event in own if event.name not in computing])
        total["compute"] += products - optimizer - idle
        total["optimizer"] += optimizer
        total["exposed_communication"] += exposed
        total["bubble"] += idle
        total["host"] += max(event.end for event in own) - own[0].start - busy
        total["hidden_communication"] += sent - exposed
    return {term: t / len(devices) / count for term, t in total.items()}, len(devices)


def per_step(events: Sequence[RecordedEvent], steps: int) -> dict[str, Measured]:
    """Instruction name -> calls and seconds in one step, of events of `steps` complete steps."""
    durations: dict[str, list[float]] = defaultdict(list)
    for event in events:
        durations[event.name].append(event.duration)
    count = steps * len({event.device for event in events})
    return {name: Measured(len(d) / count, sum(d) / count) for name, d in durations.items()}


def union(events: Sequence[RecordedEvent]) -> float:
    """Seconds in which at least one of the events runs."""
    if not events:
        return 0.0
    spans = np.array(sorted((e.start, e.end) for e in events))
    covered = np.maximum.accumulate(spans[:, 1])[:-1]  # up to here, by those that started before
    begin = np.maximum(spans[1:, 0], covered)
    rest = np.maximum(spans[1:, 1] - begin, 0.0).sum()
    return float(spans[0, 1] - spans[0, 0] + rest)


def waits_before(name: str, events: Sequence[RecordedEvent]) -> float:
    """Seconds in which a device did nothing right before the instruction of that name."""
    total, busy = 0.0, events[0].start
    for event in events:
        total += max(event.start - busy, 0.0) if event.name == name else 0.0
        busy = max(busy, event.end)
    return total


def by_device(events: Iterable[RecordedEvent]) -> dict[int, list[RecordedEvent]]:
    """The events of each device, by start."""
    devices: dict[int, list[RecordedEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.start):
        devices[event.device].append(event)
    return dict(sorted(devices.items()))


def longest(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by name, the longest first."""
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))
