"""Whole steps of a recording: how many it holds, and the events of these.

    recorded    ~~dot  gather  adam | dot  gather  adam | dot  gat~~
    whole                           |<------ one ------>|

Executions are numbered on CPUs. On GPUs the instructions tell that run once in a step.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from scaling.comparing.recorded import RecordedEvent
from scaling.comparing.steps import by_device
from scaling.meshes.errors import InputError

COMMON = 0.1  # of the instructions: so many tell the number of steps, fewer lack a lost event


def count_steps(events: Sequence[RecordedEvent], calls: Mapping[str, float]) -> int | None:
    """The number of complete steps: of numbered executions (CPU), else by what runs in each.

    An instruction that runs c times in a step, `calls`, has c x steps events on each device, a few
    more where the recording began or ended within a step, a few less where the profiler lost some.
    None where no instruction tells.
    """
    if events[0].run is not None:
        sizes = [Counter(e.run for e in own) for own in by_device(events).values()]
        return min(sum(n == max(runs.values()) for n in runs.values()) for runs in sizes)
    seen = Counter((event.device, event.name) for event in events if event.name in calls)
    counts = Counter(round(n / calls[name]) for (_, name), n in seen.items())
    least = COMMON * sum(counts.values())
    common = [n for n, times in counts.items() if n and times >= least]
    return min(common, default=None)


def whole_steps(
    events: Sequence[RecordedEvent], calls: Mapping[str, float]
) -> tuple[list[RecordedEvent], int]:
    """Events of complete steps on GPUs, and the number of steps.

    All events where each instruction ran as often as in whole steps. Where the recording began or
    ended within a step, or lost events: those from the first to the last start of an instruction
    that runs once in a step, or to every c-th of one that runs c times where none runs once. A
    period from there is a step of another phase.

    `calls`: in a step, of instructions that are one kernel each, in the order of the schedule.
    """
    own = by_device(events)
    seen = {device: Counter(e.name for e in own[device]) for device in own}
    each = 1 if 1 in calls.values() else max(1, round(min(calls.values())))
    rarest = [name for name, n in calls.items() if n == each] or list(calls)
    marks = {device: max(rarest, key=lambda name: seen[device][name]) for device in own}
    found = {d: [e.start for e in own[d] if e.name == marks[d]][::each] for d in own}
    count = min(map(len, found.values()))
    # Each instruction ran as often as in `count` steps; some are several kernels.
    is_whole = lambda runs: all(
        n % count == 0 and (name not in calls or n == count * calls[name])
        for name, n in runs.items()
    )
    if count < 2 or all(map(is_whole, seen.values())):
        return list(events), max(count, 1)
    begin = {d: starts[-count] for d, starts in found.items()}
    kept = [e for d in own for e in own[d] if begin[d] <= e.start < found[d][-1]]
    return (kept, count - 1) if kept else (list(events), 1)  # as where one is recorded twice


def complete_steps(events: Iterable[RecordedEvent], steps: int) -> list[RecordedEvent]:
    """The last `steps` executions of a program; what was recorded of one before is left out.

    A recording begins while the step before may still run. Where executions are numbered (CPU) the
    last ones are kept; elsewhere (GPU) the end of that earlier step is found by its last
    instruction, which is seen once too often.
    """
    kept: list[RecordedEvent] = []
    for own in by_device(events).values():
        last = max(own, key=lambda event: event.end).name
        ends = [event.end for event in own if event.name == last]
        runs = list(dict.fromkeys(event.run for event in own))
        is_numbered = own[0].run is not None
        count = len(runs) if is_numbered else len(ends)
        if count < steps:
            raise InputError(f"the profile holds {count} steps of the program, not {steps}")
        if is_numbered:
            wanted = frozenset(runs[-steps:])
            own = [event for event in own if event.run in wanted]
        elif count % steps:
            surplus = count // (steps + 1)  # the kernels of the last instruction in one step
            own = [event for event in own if event.start >= ends[surplus - 1]]
        kept += own
    return kept
