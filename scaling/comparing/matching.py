"""A recording of any program, joined with a prediction of it as far as their names agree.

    hlo_op of an event = name of an instruction      as compiled with the same versions and flags,
                         or of the one inside of it  of an asynchronous one: reduce-scatter.4.1
    kernel of an event = that name, . as _           inside of a command buffer (a CUDA graph)
    kind and order of a collective                   where both have as many of the kind left
    class by the names of either                     the rest

A program that was compiled without a GPU may be fused otherwise than the one that ran. Where less
than half of the device time is spent in instructions that both have, equal names mean little:
classes are compared then, and no single instructions.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from scaling.comparing.classes import FUSION, class_by_name, class_of, is_of_xla, library_class
from scaling.comparing.executions import complete_steps, count_steps, whole_steps
from scaling.comparing.recorded import RecordedEvent
from scaling.comparing.steps import (
    CONTAINER,
    MATCHED,
    Match,
    Recording,
    by_device,
    known_operations,
    longest,
    mean_terms,
    per_step,
    waits_before,
)
from scaling.meshes.errors import InputError
from scaling.program.ir import COLLECTIVE_KINDS, Operation, Program, collectives, operations

SUFFIX = re.compile(r"\.kd$")  # of kernels on AMD's GPUs
LIBRARY = "kernel "  # how we name a library's kernel that is of no instruction
LONGEST = 60  # characters of a kernel's name that are kept; those of templates have hundreds
SHOWN = 3  # modules that a message names
UNNAMED = (  # openxla/xprof issue 3070
    "; kernels in command buffers do not say their module: run once with "
    "XLA_FLAGS=--xla_gpu_enable_command_buffer="
)


def match_recording(
    events: Sequence[RecordedEvent], program: Program, steps: int | None = None
) -> Recording:
    """Figures of one step in a recording of a program that may have been compiled otherwise.

    `steps` None: counted by the instructions that run in each step.

    Raises:
        InputError: a recording of another program, or of fewer steps.
    """
    known = known_operations(program)
    module, recorded, share, without = _module_of(events, program)
    by_name = share >= MATCHED  # else equal names are not of equal instructions
    each = ((step.name, float(n)) for step, n in operations(program.schedule))
    calls = {name: n for name, n in each if name in known and n}  # in a step
    kept, count, counted = _whole_steps(recorded, by_name, known, calls, steps)
    named = known if by_name else {}
    ordered = _in_order(kept, program, named, calls, count)
    kept = [replace(e, name=ordered[e.name]) if e.name in ordered else e for e in kept]
    measured, classes = per_step(kept, count), dict[str, str]()
    for name, kernel in {event.name: event.kernel for event in kept}.items():
        words = name.removeprefix(LIBRARY), kernel
        classes[name] = class_of(named[name]) if name in named else class_by_name(*words)
    trusted = calls.keys() if by_name else set(ordered.values())
    mine = {n: m for n, m in measured.items() if n in trusted}
    rest = {n: m.seconds for n, m in measured.items() if n not in mine}
    others: dict[str, float] = defaultdict(float)
    for name, seconds in rest.items():
        others[classes[name]] += seconds
    computing = {name for name, kind in classes.items() if kind not in COLLECTIVE_KINDS}
    terms, devices = mean_terms(kept, program, count, computing)
    first = next((name for name in calls if name in mine), "")
    by_devices = by_device(kept).values()
    spans = [(max(e.end for e in own) - own[0].start) / count for own in by_devices]
    between = sum(waits_before(first, own) for own in by_devices) / count / devices
    match = Match(
        module=module,
        share=share,
        by_name=by_name,
        by_order=ordered,
        counted=counted,
        recorded_only=longest(rest),
        fastest_device=min(spans),
        slowest_device=max(spans),
        without=without / count / devices,
        between=between,
    )
    return Recording(mine, terms, devices, count, dict(others), match)


def _whole_steps(
    events: Sequence[RecordedEvent],
    by_name: bool,
    known: Mapping[str, Operation],
    calls: Mapping[str, float],
    steps: int | None,
) -> tuple[list[RecordedEvent], int, int | None]:
    """Events of whole steps, their number, and the number that the instructions tell."""
    recorded = {event.name for event in events}
    seen = {n: c for n, c in calls.items() if n in recorded}
    one_kernel = FUSION, *COLLECTIVE_KINDS  # of a GPU each; where none is, all count
    single = {n: c for n, c in seen.items() if class_of(known[n]) in one_kernel} or seen
    alike = dict.fromkeys(recorded, 1.0)  # most recur once a step
    counted = count_steps(events, single) or count_steps(events, alike)
    if steps is None and by_name and events[0].run is None:
        return *whole_steps(events, single), counted
    count = steps or counted or 1
    return complete_steps(events, count), count, counted


def _in_order(
    events: Sequence[RecordedEvent],
    program: Program,
    known: Collection[str],
    calls: Mapping[str, float],
    steps: int,
) -> dict[str, str]:
    """Recorded collectives, and those of the program that they are: the n-th left of each kind.

    Only where both sides have as many of the kind, each run as often in a step. `known` are the
    instructions that are joined by name.
    """
    measured = per_step(events, steps)
    first = next((name for name in known if name in measured), "")  # where a step begins
    start = min((event.start for event in events if event.name == first), default=-math.inf)
    unknown: dict[str, list[str]] = defaultdict(list)
    for event in events:
        kind = "" if event.name in known else class_by_name(event.name, event.kernel)
        if kind in COLLECTIVE_KINDS and event.start >= start and event.name not in unknown[kind]:
            unknown[kind].append(event.name)
    absent: dict[str, list[str]] = defaultdict(list)
    for step, _ in collectives(program):
        is_joined = step.name in known and step.name in measured
        if (step.axes or step.groups) and step.name in calls and not is_joined:
            absent[step.kind].append(step.name)
    pairs: dict[str, str] = {}
    for kind, names in absent.items():
        runs = [round(measured[name].calls) for name in unknown[kind]]
        if runs == [round(calls[name]) for name in names]:
            pairs |= dict(zip(unknown[kind], names, strict=True))
    return pairs


def _module_of(
    events: Sequence[RecordedEvent], program: Program
) -> tuple[str, list[RecordedEvent], float, float]:
    """The module of the program's name, else the one that spends most time in its instructions:
    its name, its events, the share of their time in instructions of the program, and seconds of
    kernels of no instruction.

    Kernels that say no module are of the same one, where their names tell that they are of any.

    Raises:
        InputError: none of that name, and less than half of the time of any is in instructions of
            the program.
    """
    known = known_operations(program)
    names = {step.inside: name for name, step in known.items() if step.inside}
    names |= {re.sub(r"\W", "_", name): name for name in known} | {name: name for name in known}
    modules: dict[str, list[RecordedEvent]] = defaultdict(list)
    for event in events:
        if not CONTAINER.match(event.name):
            modules[event.module].append(_named(event, names))
    stray = modules.pop("", [])
    adopted = [event for event in stray if event.name]
    whole = {name: [*own, *adopted] for name, own in modules.items()} or {"": adopted}
    shares = {}
    for name, own in whole.items():  # of the time of events that name an instruction
        named = [event for event in own if not event.name.startswith(LIBRARY)]
        shares[name] = _sum(e for e in named if e.name in known) / (_sum(named) or 1.0)
    matched = lambda name: shares[name] * _sum(modules.get(name, adopted))
    best = program.module if program.module in modules else max(whole, key=matched)
    if shares[best] < MATCHED and (best != program.module or not best):
        raise InputError(_another_program(whole, shares, program))
    mine = sorted(whole[best], key=lambda event: event.start)
    return best, mine, shares[best], _sum(event for event in stray if not event.name)


def _named(event: RecordedEvent, names: Mapping[str, str]) -> RecordedEvent:
    """The event with the instruction that it is of; with its kernel's name, if it tells of none.

    `names`: instructions by all their names, that of their kernel among them.
    """
    if event.name:
        name = names.get(event.name, event.name)
    elif not (name := names.get(re.sub(r"\W", "_", _plain(event.kernel)), "")):
        is_library = bool(library_class(event.kernel))
        known = is_library or event.module or is_of_xla(event.kernel)
        name = f"{LIBRARY * is_library}{_plain(event.kernel)}" if known else ""
    return event if name == event.name else replace(event, name=name)


@cache
def _plain(kernel: str) -> str:
    """The name of a kernel without what templates and arguments add to it."""
    return re.split(r"[(<]", SUFFIX.sub("", kernel).removeprefix("void "))[0][:LONGEST]


def _another_program(
    modules: Mapping[str, Sequence[RecordedEvent]], shares: Mapping[str, float], program: Program
) -> str:
    """What is recorded instead of the program, the longest first."""
    by_time = sorted(modules, key=lambda name: -_sum(modules[name]))
    said = ", ".join(
        f"{name or 'kernels of no module'} ({shares[name]:.0%} of its time in instructions of the "
        "program)"
        for name in by_time[:SHOWN]
    )
    more = f" and {len(modules) - SHOWN} more modules" if len(modules) > SHOWN else ""
    wanted = program.module or program.name
    return (
        f"the profile is of another program: it has {said}{more}, not {wanted}; record the step "
        f"that is priced, and compile both with one version of jax{'' if any(modules) else UNNAMED}"
    )


def _sum(events: Iterable[RecordedEvent]) -> float:
    return sum(event.duration for event in events)
