"""A prediction joined with a recording by the names of instructions: the parts of a comparison."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scaling.comparing.classes import CLASSES, class_of
from scaling.comparing.comparison import CollectivePair, KernelPair, Pair
from scaling.comparing.steps import Recording, longest
from scaling.program.ir import COLLECTIVE_KINDS, Collective, Number, Program, collectives, kernels
from scaling.simulate.prediction import TERMS, axis_name


def joined(
    time: Mapping[str, float],
    program: Program | None,
    seconds: Mapping[str, float],
    recording: Recording | None,
    comparable: bool,
) -> dict[str, Any]:
    """The fields of a `Comparison` that a recording tells: terms, sums, classes, collectives, ...

    Args:
        time: predicted seconds, by TERMS.
        seconds: predicted, of all calls of each instruction in one step, by name.
        comparable: False for devices that share the cores of one machine.
    """
    terms = recording.terms if recording else {}
    parts: dict[str, Any] = {"time": {t: Pair(time[t], terms.get(t), comparable) for t in TERMS}}
    seen = recording.instructions if recording else {}
    pairs = {
        name: Pair(seconds.get(name), seen[name].seconds if name in seen else None, comparable)
        for name in (dict(seconds) | dict.fromkeys(seen))
    }
    parts["sums"] = _sums(program, pairs, recording) if program and recording else {}
    parts["classes"] = _classes(program, pairs, recording) if program and recording else {}
    parts["collectives"] = _collectives(program, pairs, recording) if program else ()
    parts["kernels"] = _kernels(program, pairs, recording) if program and recording else ()
    absent = {name: s for name, s in seconds.items() if name not in seen and s > 0}
    match = recording.match if recording else None
    parts["match"] = replace(match, predicted_only=longest(absent)) if match else None
    return parts


def _sums(program: Program, pairs: Mapping[str, Pair], recording: Recording) -> dict[str, Pair]:
    """Seconds of one step over all devices: of all kernels, and of all instructions."""
    names = {kernel.name for kernel, _ in kernels(program)}
    others = {c: s for c, s in recording.others.items() if c not in COLLECTIVE_KINDS}
    computing = [*(pair for name, pair in pairs.items() if name in names), *_unpredicted(others)]
    everything = _total([*pairs.values(), *_unpredicted(recording.others)], recording.devices)
    return {
        "kernels": _total(computing, recording.devices),
        "kernels and collectives": replace(everything, comparable=True),
    }


def _classes(program: Program, pairs: Mapping[str, Pair], recording: Recording) -> dict[str, Pair]:
    """Seconds of one step on one device by class, those of unknown instructions with the rest."""
    found: dict[str, list[Pair]] = {}
    known = {step.name: step for step, _ in (*kernels(program), *collectives(program))}
    for name, step in known.items():
        found.setdefault(class_of(step), []).append(pairs.get(name, Pair(None, None)))
    for name, pair in zip(recording.others, _unpredicted(recording.others), strict=True):
        found.setdefault(name, []).append(pair)
    return {name: _total(found[name]) for name in CLASSES if name in found}


def _unpredicted(seconds: Mapping[str, float]) -> list[Pair]:
    return [Pair(None, value) for value in seconds.values()]


def _collectives(
    program: Program, pairs: Mapping[str, Pair], recording: Recording | None
) -> tuple[CollectivePair, ...]:
    """Identical collectives as one, the longest first."""
    merged: dict[tuple[str, str, float], dict[str, tuple[Pair, Pair]]] = {}
    for collective, calls in collectives(program):
        if collective.axes or collective.groups:
            key = (collective.kind, axis_name(collective), float(collective.bytes))
            seconds = pairs.get(collective.name, Pair(None, None))
            moved = _bytes(collective, calls, recording)
            merged.setdefault(key, {})[collective.name] = (seconds, moved)
    found = [
        CollectivePair(
            *key,
            _total(s for s, _ in same.values()),
            _total(b for _, b in same.values()),
            {name: s for name, (s, _) in same.items()},
        )
        for key, same in merged.items()
    ]
    return tuple(sorted(found, key=lambda c: -(c.seconds.predicted or 0.0)))


def _bytes(collective: Collective, calls: Number, recording: Recording | None) -> Pair:
    """Bytes of all calls in one step: calls of the program, and calls that were recorded."""
    size = float(collective.bytes)
    seen = recording.instructions.get(collective.name) if recording else None
    return Pair(size * float(calls), size * seen.calls if seen else None)


def _kernels(
    program: Program, pairs: Mapping[str, Pair], recording: Recording
) -> tuple[KernelPair, ...]:
    """Every kernel that was recorded, the largest difference first."""
    found = [
        KernelPair(name, f"{k.origin.phase} {k.origin.layer}".strip(), seen.calls, pairs[name])
        for name, k in {kernel.name: kernel for kernel, _ in kernels(program)}.items()
        if (seen := recording.instructions.get(name)) is not None
    ]
    off = lambda pair: abs((pair.predicted or 0.0) - (pair.measured or 0.0))
    return tuple(sorted(found, key=lambda kernel: -off(kernel.seconds)))


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
