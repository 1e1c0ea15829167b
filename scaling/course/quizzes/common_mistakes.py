"""Common mistakes: what a wrong guess divided by the answer betrays.

A quiz lists the mistakes that are possible in it, so that it calls a factor of 2 by its cause.
Some take a number, such as `ring 8`, the members of a group.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scaling.course.language import t
from scaling.meshes.errors import InputError, nearest

# Relative distance at which a ratio is that of a mistake: guesses have two or three digits.
NEAR = 0.03
ALWAYS = "thousand", "million"  # of every quiz: its numbers have units
# Factor above which a guess is said to be so far off.
FAR = (
    (100, "by more than a factor of 100"),
    (10, "by more than a factor of ten"),
    (2, "by two to ten times"),
    (1, "by less than a factor of two"),
)


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
            return t("right ({off:+.1%})", off=self.ratio - 1)
        if self.ratio <= 0:
            return t("wrong: the answer is above zero")
        factor = f"{max(self.ratio, 1 / self.ratio):.3g}"
        high, low = t("too high by a factor of {factor}"), t("too low by a factor of {factor}")
        said = (high if self.ratio > 1 else low).format(factor=factor)
        if not self.mistakes:
            return f"{said}; {t('no mistake that we know has this factor')}"
        return "\n".join([said, *self._perhaps()])

    @property
    def hint(self) -> str:
        """What is said to a wrong first guess: the side it lies on and its mistakes, no factor."""
        if self.ratio <= 0:
            return t("The answer is above zero.")
        far = max(self.ratio, 1 / self.ratio)
        by = t(next(word for least, word in FAR if far > least))
        side = t("Too high, {by}.", by=by) if self.ratio > 1 else t("Too low, {by}.", by=by)
        return "\n".join([side, *self._perhaps()])

    def _perhaps(self) -> list[str]:
        said = t("  perhaps {sentence}\n    check: {check}")
        return [said.format(sentence=m.sentence, check=m.check) for m in self.mistakes]


# name -> (factor of its number, what was probably done, check)
KNOWN: dict[str, tuple[Callable[[float], float], str, str]] = {
    "both directions": (
        lambda _: 2,
        "both directions of a link were added up, or one was counted where both are asked for.",
        "scaling cluster show prints one direction: 450 GB/s of an H100, not 900.",
    ),
    "sparse peak": (
        lambda _: 2,
        "the peak with 2:4 sparsity was taken for the dense one.",
        "scaling chip prints dense peaks only.",
    ),
    "bytes per element": (
        lambda n: n or 2,
        "the bytes per element were left out, or those of another dtype were taken.",
        "bf16 has 2 bytes, fp32 4, int8 1, int4 half a byte.",
    ),
    "multiply and add": (
        lambda _: 2,
        "a multiply-add was counted as one FLOP; it is two.",
        "scaling kernel matmul --all prints the FLOPs as 2 m n k.",
    ),
    "all-reduce once": (
        lambda _: 2,
        "the bytes were counted once; an all-reduce moves them twice.",
        "compare scaling collective all-reduce with all-gather, both with --ideal.",
    ),
    "keys and values": (
        lambda _: 2,
        "only the keys were counted, or only the values; a KV cache holds both.",
        "scaling count prints the bytes of both per token.",
    ),
    "bits": (
        lambda _: 8,
        "bits were taken for bytes.",
        "400 Gb/s are 50 GB/s: scaling cluster show prints bytes.",
    ),
    "node for chip": (
        lambda n: n or 8,
        "the figure of a whole node was taken for that of one chip, or the reverse.",
        "scaling cluster show prints the NIC of a chip and the NICs of a node on separate lines.",
    ),
    "GiB": (
        lambda _: 2**30 / 1e9,
        "GiB (2**30) and GB (1e9) were mixed up.",
        "they are 7.4 % apart; vendors print memory in GiB and rates in GB.",
    ),
    "ring": (
        lambda n: n / (n - 1),
        "all bytes were counted; a member holds its own part already and receives only (N - 1)/N.",
        "scaling array prints the formula of an all-gather: it has (X - 1) / X.",
    ),
    "backward": (
        lambda n: n or 3,
        "only the forward pass was counted; training costs three times as much.",
        "scaling count --all prints forward and training FLOPs.",
    ),
    "remat": (
        lambda _: 4 / 3,
        "recomputation was counted or left out: with it a parameter and token take 8 FLOPs, not 6.",
        "scaling predict prints MFU, which leaves recomputation out, and HFU.",
    ),
    "causal": (
        lambda n: n or 2,
        "all scores were counted instead of the half that a causal mask leaves, or the reverse.",
        "scaling count counts all scores, and with --causal half of them.",
    ),
    "scores": (
        lambda n: n,
        "the attention scores were left out: they have no weights, and 6 N does not count them.",
        "scaling count --all prints the share of the attention core.",
    ),
    "experts": (
        lambda n: n,
        "the parameters of all experts were taken for those that a token uses, or the reverse.",
        "scaling count prints all and active parameters.",
    ),
    "gated": (
        lambda _: 1.5,
        "the MLP was taken to have two matrices; with a gate it has three.",
        "scaling count prints the MLP's parameters.",
    ),
    "optimizer": (
        lambda n: (n or 16) / 10,
        "weights and optimizer state were counted with more or fewer than 10 bytes per parameter.",
        "scaling count --all prints what makes 10, 12, 16 and 18 bytes.",
    ),
    "ratio of groups": (
        lambda n: n,
        "as many KV heads as query heads were counted; grouped-query attention has fewer.",
        "scaling count --all prints the number of both.",
    ),
    "copies": (
        lambda n: n,
        "an axis was taken to shard the array where it replicates it, or the reverse.",
        "scaling array prints bytes per device and copies.",
    ),
    "stages": (
        lambda n: n / (n - 1),
        "P idle turns were counted; a stage is idle for P - 1.",
        "scaling limits --all with --mesh stage=P prints the formula.",
    ),
    "one way": (
        lambda _: 2,
        "only the forward pass was counted; the backward pass sends as much again.",
        "scaling predict counts the calls of a whole step.",
    ),
    "layers": (
        lambda n: n,
        "one layer was taken for all of them, or the reverse.",
        "scaling count --all prints the parameters of both.",
    ),
    "memory for network": (
        lambda n: n,
        "the bandwidth of the chip's memory was taken for that of its links, or the reverse.",
        "scaling chip prints the memory's, scaling cluster show those of the links.",
    ),
    "grows with members": (
        lambda n: n,
        "the time was taken to grow with the group; the bytes that a member receives hardly do.",
        "scaling array prints the formula of an all-gather: (X - 1) / X of the bytes.",
    ),
    "other network": (
        lambda n: n,
        "the links inside a node were taken for those between nodes, or the reverse.",
        "scaling collective names the slowest link in its line `bottleneck`.",
    ),
    "one hop": (
        lambda n: n,
        "one hop was counted; the bytes make several, one after another.",
        "a ring of N members takes N - 1 hops, on a torus N / 2 at most.",
    ),
    "whole step": (
        lambda n: n,
        "the whole step was taken to change; only a part of it does.",
        "scaling predict prints how much of a step computes, waits and is idle.",
    ),
    "no wait": (
        lambda n: n,
        "the step was taken to stay as it is; a part of it waits for what changes.",
        "scaling predict prints how much of a step waits for communication.",
    ),
    "idle over work": (
        lambda n: n,
        "the idle time was divided by the work, not by the whole step.",
        "with M microbatches a step takes M + P - 1 turns, not M.",
    ),
    "uncut": (
        lambda n: n,
        "the whole model was counted; fsdp leaves each device its share of it.",
        "scaling count prints bytes of the whole model, with --devices 8 those of a device.",
    ),
    "state alone": (
        lambda n: n,
        "only weights and optimizer state were counted, without gradients and activations.",
        "scaling predict prints the memory by what it holds.",
    ),
    "no activations": (
        lambda n: n,
        "weights, moments and gradients were counted, and no activations.",
        "scaling predict prints the memory by what it holds.",
    ),
    "a turn too many": (
        lambda n: n,
        "P idle turns of M + P were counted; it is P - 1 of M + P - 1.",
        "two stages and one microbatch take two turns, and each stage is idle in one of them.",
    ),
    "both passes": (
        lambda n: n,
        "idle turns of both passes were counted, and the work of only one.",
        "backward there are 2 (P - 1) idle turns more, and 2 M of work: the share stays.",
    ),
    "one batch": (
        lambda n: n,
        "all of the batch was taken to pass at once; microbatches follow one another.",
        "the picture of the question: while stage 1 has microbatch 1, stage 0 has 2.",
    ),
    "hidden for fewest": (
        lambda n: n,
        "the tokens that hide the traffic were given; asked is which split sends fewer bytes.",
        "scaling limits prints both: tokens that hide it, and the axis of the least communication.",
    ),
    "width": (
        lambda n: n,
        "the width of the model was taken for that of its MLP, or the reverse.",
        "scaling config prints both of a recipe: d_model and d_ff.",
    ),
    "longest axis": (
        lambda n: n,
        "the best X was set to N; all chips beat half of them from fewer tokens on.",
        "put X = N and X = N / 2 into the bytes of a chip, and compare.",
    ),
    "upside down": (
        lambda n: n,
        "the ratio was taken the other way round.",
        "what takes longer is a factor above one.",
    ),
    "usual share": (
        lambda n: n,
        "40 % of the peak was assumed, which many trainings reach.",
        "scaling predict prints the MFU of this model on these chips.",
    ),
    "peak for reached": (
        lambda n: n,
        "the chip's peak was taken for the rate that training reaches.",
        "the share of the peak that is reached is the MFU, which scaling predict prints.",
    ),
    "equal links": (
        lambda n: n,
        "the formula for equal links was used, and the links differ.",
        "the links of a node are several times as fast as a chip's share of the network.",
    ),
    "all members": (
        lambda n: n,
        "the figure of all devices was taken for that of one, or the reverse.",
        "divide or multiply by the number of devices.",
    ),
    "whole node": (
        lambda n: n,
        "all devices of a node were used because their links are fast; fast links take time too.",
        "scaling limits prints the largest tensor axis that compute hides.",
    ),
    "other chip": (
        lambda n: n,
        "the figures of another version of the chip were taken.",
        "scaling cluster show names the chip, scaling chip prints its figures.",
    ),
    "measured for possible": (
        lambda n: n,
        "the measured value was given; asked is what the chips allow.",
        "scaling predict prices the step on both machines.",
    ),
    "typical one": (
        lambda n: n,
        "a typical one was taken, not the slowest.",
        "scaling learn sweep prints the rank and the step time of each try.",
    ),
    "all factors": (
        lambda n: n,
        "every exhibit was counted; some have another factor, and one is right.",
        "the last column of the table behind the guess has every factor.",
    ),
    "part for whole": (
        lambda n: n,
        "one of several equal parts was taken for all of them, or the reverse.",
        "divide or multiply by their number.",
    ),
    "weights alone": (
        lambda n: n,
        "only the bytes of the weights were counted; what else is read and written counts too.",
        "the question says which bytes count.",
    ),
    "other bound": (
        lambda n: n,
        "the time of the FLOPs was given where moving the bytes takes longer, or the reverse.",
        "scaling kernel prints what binds, and the longer time counts.",
    ),
    "hours": (lambda _: 24, "hours and days were mixed up.", "86,400 seconds are a day."),
    "thousand": (
        lambda _: 1e3,
        "a prefix is one step off, such as micro for milli, or mega for giga.",
        "every command prints units, and --json has SI units.",
    ),
    "million": (
        lambda _: 1e6,
        "a prefix is two steps off, such as seconds for microseconds, or bytes for MB.",
        "every command prints units, and --json has SI units.",
    ),
    "percent": (lambda _: 100, "a share and percent were mixed up.", "0.41 is 41 %."),
}


def mistake(text: str) -> Mistake:
    """Return the mistake of a quiz's line: its name, and its number where it has one."""
    name, _, last = text.rpartition(" ")
    numbered = name in KNOWN and _is_number(last)
    name, parameter = (name, float(last)) if numbered else (text, 0.0)
    if name not in KNOWN:
        raise InputError(f"no mistake is called {name!r}; {nearest(name, KNOWN)}")
    factor, sentence, check = KNOWN[name]
    return Mistake(name, factor(parameter), t(sentence), t(check))


def possible_mistakes(names: Iterable[str]) -> list[Mistake]:
    """Return the mistakes of a quiz's lines, and those that are possible in every quiz."""
    return [mistake(name) for name in dict.fromkeys([*names, *ALWAYS])]


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
    mistakes = possible_mistakes(possible)
    found = [s for s in mistakes if _near(ratio, s.factor) or _near(ratio, 1 / s.factor)]
    return Verdict(False, ratio, tuple(found))


def _near(ratio: float, factor: float) -> bool:
    return abs(ratio / factor - 1) <= NEAR


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
