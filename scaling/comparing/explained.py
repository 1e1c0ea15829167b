"""Which term makes up the difference between a predicted and a measured step, in one sentence.

the step takes 2.1 ms more than predicted: exposed communication 1.9 ms more, compute 0.2 ms
more; most by all-reduce[data] 67.1 MB, 3.1 ms instead of 1.0 ms
"""

from collections.abc import Mapping, Sequence

from scaling.comparing.pairs import CollectivePair, Pair
from scaling.meshes.units import format_size, format_time
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.simulate.prediction import TERMS

SUMMED = TERMS[:-1]  # hidden communication stands outside of the sum
COMPUTING = ("compute", "optimizer")
SAME = 0.01  # of the measured step, chosen by this project: a smaller difference is none
NAMED = 0.1  # share of the step's difference from which on a term is named


def explanation(
    time: Mapping[str, Pair],
    classes: Mapping[str, Pair],
    collectives: Sequence[CollectivePair],
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
    term: str,
    difference: float,
    classes: Mapping[str, Pair],
    collectives: Sequence[CollectivePair],
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
