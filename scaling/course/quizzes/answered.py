"""Answered quizzes: our numbers beside those by hand and the guide's, and what guesses betray."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from scaling.course.language import padded, t
from scaling.course.quizzes.common_mistakes import diagnose
from scaling.course.quizzes.quiz import Quiz, QuizAnswer
from scaling.meshes.errors import InputError

LONGEST = 80  # characters of a guess that are repeated in a message
# Commas between groups of three digits; of 1,5 nobody knows what was meant.
THOUSANDS = re.compile(r"^[+-]?\d{1,3}(?:,\d{3})+(?![\d,])")
LINE = "{:<28} {} {:>12} {:>12} {:>12}  {}"
SUMMARY = (
    "{quizzes} quizzes, {numbers} numbers: {right} right, {differs} differ with a reason, "
    "{wrong} wrong"
)
NAME = 28  # columns of a number's name


def answered(
    quiz: Quiz, numbers: Sequence[float], guesses: Sequence[float | None] = ()
) -> list[dict[str, Any]]:
    """Return name, unit, our number, the guide's and commands of each number, and the verdict.

    Args:
        numbers: ours, one for each that it asks for, in its units.
        guesses: the reader's, in the same order; the last may be left out, None is no guess.
    """
    found = []
    padded = [*guesses, *[None] * (len(numbers) - len(guesses))]
    for answer, ours, guess in zip(quiz.answers, numbers, padded, strict=True):
        result: dict[str, Any] = {
            **{"name": answer.name, "unit": answer.unit, "answer": ours, "book": answer.book},
            **{"commands": answer.typed, "reason": answer.reason},
        }
        if guess is not None:
            verdict = diagnose(guess, ours, answer.tolerance, answer.mistakes)
            result |= {"guess": guess, "right": verdict.right, "verdict": str(verdict)}
            # under the key that pages and scripts read
            result["slips"] = [{"sentence": m.sentence, "check": m.check} for m in verdict.mistakes]
        found.append(result)
    return found


def guesses_of(quiz: Quiz, written: Sequence[object]) -> list[float | None]:
    """Return the guesses of a quiz as they were written; None is no guess."""
    count = len(quiz.answers)
    if len(written) > count:
        numbers = "number" if count == 1 else "numbers"
        raise InputError(f"{quiz.id} asks for {count} {numbers}, not {len(written)}")
    asked = zip(quiz.answers, written, strict=False)
    return [None if guess is None else guess_of(guess, answer.unit) for answer, guess in asked]


def guess_of(written: object, unit: str = "") -> float:
    """Return a guess as it was written, `1,040` or `2e-3`; InputError for what is no number."""
    where = t(", in {unit}", unit=t(unit)) if unit else ""
    text = shorten(str(written), LONGEST)
    try:
        value = float(THOUSANDS.sub(lambda found: found[0].replace(",", ""), text))
    except ValueError:
        value = float("inf")
    if not abs(value) < float("inf"):
        raise InputError(f"{text!r} is no number; write for example 1.04 or 2e3{where}")
    return value


@dataclass(frozen=True)
class QuizVerdict:
    """Our number beside the one by hand and the guide's, in the unit of the quiz."""

    quiz: Quiz
    answer: QuizAnswer
    ours: float

    @property
    def as_expected(self) -> bool:
        """True if ours and the one by hand agree within the tolerance."""
        return near(self.ours, self.answer.expected, self.answer.tolerance)

    @property
    def as_printed(self) -> bool:
        """True if ours and the guide's agree within the tolerance, or it prints none."""
        book = self.answer.book
        return book is None or near(self.ours, book, self.answer.tolerance)

    @property
    def word(self) -> str:
        """right, "differs" (with a reason), or "wrong"."""
        if self.as_expected and self.as_printed:
            return "right"
        return "differs" if self.answer.reason else "wrong"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON has it."""
        answer = self.answer
        return {
            **{"quiz": self.quiz.id, "name": answer.name, "ours": self.ours},
            **{"expected": answer.expected, "book": answer.book},
            **{"as_expected": self.as_expected, "as_printed": self.as_printed},
            **{"reason": answer.reason, "verdict": self.word},
        }

    def __str__(self) -> str:
        answer = self.answer
        printed = "-" if answer.book is None else f"{answer.book:.5g}"
        word = t(self.word) + (f": {t(answer.reason)}" if self.word == "differs" else "")
        numbers = (f"{self.ours:.5g}", f"{answer.expected:.5g}", printed)
        return LINE.format(self.quiz.id, padded(t(answer.name), NAME), *numbers, word).rstrip()


def heading() -> str:
    """Return the line above the verdicts."""
    numbers = (t("ours"), t("by hand"), t("guide"))
    return LINE.format(t("quiz"), padded(t("number"), NAME), *numbers, "")


def near(value: float, other: float, tolerance: float) -> bool:
    """True if two numbers differ by no more than a share of the second."""
    return abs(value - other) <= (tolerance + 1e-12) * abs(other)


def summary(verdicts: Sequence[QuizVerdict]) -> str:
    """Return one line: how many quizzes and numbers, how many are right, how many differ."""
    words = Counter({"right": 0, "differs": 0, "wrong": 0})
    words.update(verdict.word for verdict in verdicts)
    names = len({verdict.quiz.id for verdict in verdicts})
    return t(SUMMARY).format(quizzes=names, numbers=len(verdicts), **words)
