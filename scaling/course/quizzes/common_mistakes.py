"""Common mistakes: what probably led to a wrong guess, by its factor to the answer.

A quiz lists the mistakes that are possible in it, so that it calls a factor of 2 by its cause.
Some take a number, such as `ring 8`, the members of a group. `sparse peak: high` says to which side
it goes there; otherwise it may go to both.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scaling.course.language import t
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.formula import evaluate
from scaling.meshes.reading import package_toml

# Relative distance at which a ratio is that of a mistake: guesses have two or three digits.
NEAR = 0.03
MOST = 1e9  # factor that is printed digit by digit
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
    side: str = ""  # of the answer, on which such guesses lie: "high", "low"; "": on both

    @property
    def ratios(self) -> tuple[float, ...]:
        """What such guesses are, over the answer."""
        one_sided = {"high": (self.factor,), "low": (1 / self.factor,)}
        return one_sided.get(self.side, (self.factor, 1 / self.factor))

    def explains(self, ratio: float) -> bool:
        """True if a guess over the answer is that of this mistake."""
        return any(abs(ratio / factor - 1) <= NEAR for factor in self.ratios)


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
        off = max(self.ratio, 1 / self.ratio)
        factor = f"{off:,.0f}" if 100 <= off < MOST else f"{off:.3g}"
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


@dataclass(frozen=True)
class KnownMistake:
    """A row of mistakes.toml."""

    done: str
    check: str
    factor: str | float = "n"
    n: float = 0.0


KNOWN: Mapping[str, KnownMistake] = {
    name: KnownMistake(**row) for name, row in package_toml("course/quizzes/mistakes.toml").items()
}


def mistake(text: str) -> Mistake:
    """Return the mistake of a quiz's line: its name, and its number and side where it has them."""
    text, _, side = text.partition(": ")
    name, _, last = text.rpartition(" ")
    numbered = name in KNOWN and _is_number(last)
    if not numbered:
        name = text
    if side not in ("", "high", "low"):
        raise InputError(f"{name}: {side!r} is no side; write high or low")
    if name not in KNOWN:
        raise InputError(f"no mistake is called {name!r}; {nearest(name, KNOWN)}")
    known = KNOWN[name]
    factor = evaluate(str(known.factor), {"n": float(last) if numbered else known.n})
    return Mistake(name, factor, t(known.done), t(known.check), side)


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
    found = [one for one in possible_mistakes(possible) if one.explains(ratio)]
    return Verdict(False, ratio, tuple(found))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
