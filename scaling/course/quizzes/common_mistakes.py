"""Common mistakes: what a wrong guess divided by the answer betrays.

A quiz lists the mistakes that are possible in it, so that it calls a factor of 2 by its cause.
Some take a number, such as `ring 8`, the members of a group.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scaling.meshes.errors import InputError, nearest

# Relative distance at which a ratio is that of a mistake: guesses have two or three digits.
NEAR = 0.03
ALWAYS = "thousand", "million"  # of every quiz: its numbers have units


@dataclass(frozen=True)
class Mistake:
    """A mistake with the factor that it puts on an answer, or takes from it."""

    name: str
    factor: float
    sentence: str  # what was probably done
    check: str  # how to see it


@dataclass(frozen=True)
class Verdict:
    """What a guess was: right, or off by a factor that mistakes explain."""

    right: bool
    ratio: float  # guess / answer
    mistakes: tuple[Mistake, ...] = ()

    def __str__(self) -> str:
        """Return one line, and one for each mistake."""
        if self.right:
            return f"right ({self.ratio - 1:+.1%})"
        off = f"off by a factor of {_factor(self.ratio)}"
        if self.ratio <= 0:
            return "wrong: the answer is above zero"
        if not self.mistakes:
            return f"{off}; no mistake that we know has this factor"
        perhaps = (f"  perhaps {m.sentence}\n    check: {m.check}" for m in self.mistakes)
        return "\n".join([off, *perhaps])


# name -> (factor of its number, what was probably done, check)
KNOWN: dict[str, tuple[Callable[[float], float], str, str]] = {
    "both directions": (
        lambda _: 2,
        "a link's two directions were added up, or one was asked for and both were given.",
        "scaling cluster show prints one direction: 450 GB/s of an H100, not 900.",
    ),
    "sparse peak": (
        lambda _: 2,
        "the peak with 2:4 sparsity was taken for the dense one.",
        "scaling chip prints dense peaks only.",
    ),
    "bytes per element": (
        lambda n: n or 2,
        "elements were taken for bytes, or bytes for elements.",
        "bf16 has 2 bytes, fp32 4, int8 1, int4 a half.",
    ),
    "multiply and add": (
        lambda _: 2,
        "a multiply-add counts as two FLOPs.",
        "scaling kernel matmul prints 2 m n k.",
    ),
    "all-reduce once": (
        lambda _: 2,
        "an all-reduce moves each byte twice: a reduce-scatter and an all-gather.",
        "compare scaling collective all-reduce with all-gather, --ideal.",
    ),
    "keys and values": (
        lambda _: 2,
        "a KV cache holds keys and values.",
        "scaling count prints the bytes of both per token.",
    ),
    "bits": (
        lambda _: 8,
        "bits were taken for bytes.",
        "400 Gb/s are 50 GB/s: scaling cluster show prints bytes.",
    ),
    "node for chip": (
        lambda n: n or 8,
        "the figure of a whole node was taken for one chip's, or the other way round.",
        "scaling cluster show has the NICs of a chip and of a node on lines of their own.",
    ),
    "GiB": (
        lambda _: 2**30 / 1e9,
        "GiB (2**30) and GB (1e9) were mixed up.",
        "7.4 % apart; vendors print memory in GiB and rates in GB.",
    ),
    "ring": (
        lambda n: n / (n - 1),
        "a member of a group holds its own part already: (N - 1)/N of the bytes travel.",
        "the formula of scaling collective --ideal with and without (N - 1)/N.",
    ),
    "backward": (
        lambda _: 3,
        "training costs three times the forward pass: the gradient of a product is two products.",
        "scaling count prints forward and training FLOPs.",
    ),
    "remat": (
        lambda _: 4 / 3,
        "recomputing the forward pass makes 8 FLOPs of 6 per parameter and token.",
        "scaling predict prints MFU, which leaves recomputation out, and HFU.",
    ),
    "causal": (
        lambda _: 2,
        "all scores were counted, or only the half that a causal mask leaves.",
        "scaling count prints all scores, with --causal half of them.",
    ),
    "experts": (
        lambda n: n,
        "all experts' parameters and those that a token uses were mixed up: E / k.",
        "scaling count prints all and active parameters.",
    ),
    "gated": (
        lambda _: 1.5,
        "a gated MLP has three matrices, not two.",
        "scaling count prints the MLP's parameters.",
    ),
    "optimiser": (
        lambda n: (n or 16) / 10,
        "weights and optimiser were counted with other bytes per parameter than 10.",
        "scaling count prints 10, 12, 16 and 18, and of what they are.",
    ),
    "ratio of groups": (
        lambda n: n,
        "grouped-query attention has fewer heads of keys and values than of queries.",
        "scaling count prints heads of both.",
    ),
    "copies": (
        lambda n: n,
        "an axis that an array is not split over holds copies of it.",
        "scaling array prints bytes per device and copies.",
    ),
    "stages": (
        lambda n: n / (n - 1),
        "of P stages the first waits for none: a pipeline is idle for P - 1 turns.",
        "the formula of scaling limits with --mesh stage=P.",
    ),
    "one way": (
        lambda _: 2,
        "the backward pass sends as much as the forward pass.",
        "scaling predict counts the calls of a whole step.",
    ),
    "layers": (
        lambda n: n,
        "one layer was taken for all of them, or the other way round.",
        "scaling count prints both.",
    ),
    "hours": (lambda _: 24, "hours and days were mixed up.", "86,400 seconds are a day."),
    "thousand": (
        lambda _: 1e3,
        "a prefix is one step off: milli, micro; mega, giga, tera.",
        "every command prints its unit, --json SI units.",
    ),
    "million": (
        lambda _: 1e6,
        "a prefix is two steps off: seconds for microseconds, bytes for MB.",
        "every command prints its unit, --json SI units.",
    ),
    "percent": (lambda _: 100, "a ratio was asked for, not percent.", "0.41 and not 41."),
}


def mistake(text: str) -> Mistake:
    """Return the mistake of a quiz's line: its name, and its number where it has one."""
    name, _, last = text.rpartition(" ")
    numbered = name in KNOWN and _is_number(last)
    name, parameter = (name, float(last)) if numbered else (text, 0.0)
    if name not in KNOWN:
        raise InputError(f"no mistake is called {name!r}; {nearest(name, KNOWN)}")
    factor, sentence, check = KNOWN[name]
    return Mistake(name, factor(parameter), sentence, check)


def diagnose(guess: float, answer: float, tolerance: float, possible: Iterable[str]) -> Verdict:
    """Return what a guess was.

    Args:
        tolerance: relative distance within which a guess is right.
        possible: mistakes that this quiz can go wrong by.
    """
    if not math.isfinite(guess):
        raise InputError(f"{guess} is no guess: a finite number is needed")
    if guess == answer or (answer and abs(guess / answer - 1) <= tolerance):
        return Verdict(True, guess / answer if answer else 1.0)
    ratio = guess / answer if answer else math.inf
    mistakes = map(mistake, dict.fromkeys([*possible, *ALWAYS]))
    found = [s for s in mistakes if _near(ratio, s.factor) or _near(ratio, 1 / s.factor)]
    return Verdict(False, ratio, tuple(found))


def _near(ratio: float, factor: float) -> bool:
    return abs(ratio / factor - 1) <= NEAR


def _factor(ratio: float) -> str:
    """Return a factor above 1 with three digits and its side; a guess of another sign as it is."""
    if ratio <= 0 or not math.isfinite(ratio):
        return f"{ratio:.3g}"
    return f"{ratio:.3g}" if ratio > 1 else f"1/{1 / ratio:.3g}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
