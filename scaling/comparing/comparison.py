"""One run, predicted and measured: pairs of figures, and in a sentence what makes the difference.

    error = predicted / measured - 1

What was not measured is None. The sentence:

    the step takes 2.1 ms more than predicted: exposed communication 1.9 ms more, compute 0.2 ms
    more; most by all-reduce[data] 67.1 MB, 3.1 ms instead of 1.0 ms

Devices of a CPU share its cores: while one waits in a collective, the others compute faster than
they were priced to. Terms, single kernels and single collectives have no error there; the step
time, sums of seconds over all kernels and collectives, and bytes do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaling.comparing.recorded import RecordedEvent
from scaling.comparing.steps import Match
from scaling.meshes.units import format_size, format_time
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.simulate.prediction import TERMS
from scaling.simulate.step import Priced

SUMMED = TERMS[:-1]  # hidden communication stands outside of the sum
COMPUTING = ("compute", "optimizer")
SAME = 0.01  # of the measured step, chosen by this project: a smaller difference is none
NAMED = 0.1  # share of the step's difference from which on a term is named
SHARED_CORES = (
    "the devices share the cores of one machine: while one waits in a collective, the others "
    "compute faster than priced, so terms, single kernels and single collectives cannot be "
    "compared; the step time, the sums of seconds and the bytes can"
)


@dataclass(frozen=True)
class Pair:
    """One figure, predicted and measured."""

    predicted: float | None
    measured: float | None
    comparable: bool = True

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None where either is missing, zero or not comparable."""
        if self.predicted is None or not self.measured or not self.comparable:
            return None
        return self.predicted / self.measured - 1

    @property
    def larger(self) -> float:
        """The larger of what is known of both; 0 where nothing is."""
        return max(self.predicted or 0.0, self.measured or 0.0)

    def to_dict(self) -> dict[str, float | None]:
        """The pair as JSON has it."""
        return {"predicted": self.predicted, "measured": self.measured, "error": self.error}


@dataclass(frozen=True)
class CollectivePair:
    """All calls of one collective in one step, seconds."""

    kind: str
    axis: str
    bytes: float  # of one call
    seconds: Pair
    step_bytes: Pair  # of all calls in one step; measured: the recorded calls
    instructions: Mapping[str, Pair] = field(default_factory=dict)  # the same seconds, each alone

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON has it."""
        return {
            **{"kind": self.kind, "axis": self.axis, "bytes": self.bytes},
            **self.seconds.to_dict(),
            "step_bytes": self.step_bytes.to_dict(),
            "instructions": {name: pair.to_dict() for name, pair in self.instructions.items()},
        }


@dataclass(frozen=True)
class KernelPair:
    """All calls of one kernel in one step, seconds; `calls` as measured."""

    name: str
    origin: str
    calls: float
    seconds: Pair

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON has it."""
        named = {"name": self.name, "origin": self.origin, "calls": self.calls}
        return named | self.seconds.to_dict()


@dataclass(frozen=True)
class StepPair:
    """Step time with the spread of what was measured (quartile distance over median)."""

    seconds: Pair
    spread: float | None
    steps: int


@dataclass(frozen=True)
class Comparison:
    """One run, predicted and measured."""

    name: str
    machine: str
    versions: Mapping[str, str]
    step_time: StepPair
    step_range: tuple[float, float]  # s, as predicted
    time: Mapping[str, Pair]
    memory: Pair
    compiled_memory: float | None  # bytes, as the compiler planned them for one device
    grade: str
    setting: str = ""  # model, mesh and batch, in words
    # s per step over all devices, of kernels and of all instructions
    sums: Mapping[str, Pair] = field(default_factory=dict)
    collectives: tuple[CollectivePair, ...] = ()
    kernels: tuple[KernelPair, ...] = ()
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


def explanation(
    time: Mapping[str, Pair], classes: Mapping[str, Pair], collectives: Sequence[CollectivePair]
) -> str:
    """The sentence; "" where the steps agree, or terms are not measured or not comparable."""
    longer = {term: more for term, pair in time.items() if (more := longer_by(pair)) is not None}
    if any(term not in longer for term in SUMMED):
        return ""
    difference = sum(longer[term] for term in SUMMED)
    if abs(difference) <= SAME * sum(time[term].measured or 0.0 for term in SUMMED):
        return ""
    shares = {term: more / difference for term, more in longer.items()}
    named = sorted((t for t in SUMMED if shares[t] >= NAMED), key=lambda term: -shares[term])
    said = ", ".join(f"{term.replace('_', ' ')} {_more(longer[term])}" for term in named)
    text = f"the step takes {_more(difference)} than predicted" + (f": {said}" if said else "")
    cause = _cause(named[0], difference, classes, collectives) if named else None
    if cause is None:
        return text
    name, pair = cause
    measured, predicted = (format_time(s or 0.0) for s in (pair.measured, pair.predicted))
    return f"{text}; most by {name}, {measured} instead of {predicted}"


def longer_by(pair: Pair) -> float | None:
    """Seconds measured less predicted; None where one is missing or they cannot be compared."""
    if pair.measured is None or not pair.comparable:
        return None
    return pair.measured - (pair.predicted or 0.0)


def _cause(
    term: str, difference: float, classes: Mapping[str, Pair], collectives: Sequence[CollectivePair]
) -> tuple[str, Pair] | None:
    """The class of kernels, or the collective, that differs most in the step's direction."""
    if term in COMPUTING:
        found = {f"{k} kernels": p for k, p in classes.items() if k not in COLLECTIVE_KINDS}
    elif term == "exposed_communication":
        named = {f"{c.kind}[{c.axis}] {format_size(c.bytes)}": c.seconds for c in collectives}
        kinds: dict[str, Pair] = {k: classes[k] for k in COLLECTIVE_KINDS if k in classes}
        found = named if any(longer_by(pair) for pair in named.values()) else kinds
    else:
        return None
    shares = {name: (longer_by(pair) or 0.0) / difference for name, pair in found.items()}
    largest = max(shares, key=lambda name: shares[name], default="")
    return (largest, found[largest]) if shares.get(largest, 0.0) > 0 else None


def _more(seconds: float) -> str:
    """`2 ms more`, `1 ms less`."""
    return f"{format_time(abs(seconds))} {'more' if seconds > 0 else 'less'}"
