"""An answered quiz: our numbers beside the guide's, and what each guess betrays."""

from collections.abc import Sequence
from typing import Any

from scaling.course.quizzes.common_mistakes import diagnose
from scaling.course.quizzes.quiz import Quiz
from scaling.meshes.errors import InputError


def answered(
    quiz: Quiz, numbers: Sequence[float], guesses: Sequence[float | None] = ()
) -> list[dict[str, Any]]:
    """Return name, unit, our number, the guide's and commands of each number, and the verdict.

    Args:
        quiz: the question.
        numbers: ours, one for each that it asks for, in its units.
        guesses: the reader's, in the same order; the last may be left out, None is no guess.
    """
    found = []
    for i, (answer, ours) in enumerate(zip(quiz.answers, numbers, strict=True)):
        result: dict[str, Any] = {
            **{"name": answer.name, "unit": answer.unit, "answer": ours, "book": answer.book},
            **{"commands": [f"scaling {c}" for c in answer.commands], "reason": answer.reason},
        }
        guess = guesses[i] if i < len(guesses) else None
        if guess is not None:
            verdict = diagnose(guess, ours, answer.tolerance, answer.mistakes)
            result |= {"guess": guess, "right": verdict.right, "verdict": str(verdict)}
            # under the key that pages and scripts read
            result["slips"] = [{"sentence": m.sentence, "check": m.check} for m in verdict.mistakes]
        found.append(result)
    return found


def guesses_of(quiz: Quiz, written: Sequence[str | None]) -> list[float | None]:
    """Return the guesses of a quiz as they were written; None is no guess.

    Raises:
        InputError: one is no number, or there are more than the quiz asks for.
    """
    check_count(quiz, written)
    return [None if text is None else guess_of(text) for text in written]


def check_count(quiz: Quiz, written: Sequence[object]) -> None:
    """Raise InputError for more guesses than a quiz asks for."""
    if len(written) > len(quiz.answers):
        count = len(quiz.answers)
        numbers = "number" if count == 1 else "numbers"
        raise InputError(f"{quiz.id} asks for {count} {numbers}, not {len(written)}")


def guess_of(text: str) -> float:
    """Return a guess as it was written, `1,040` or `2e-3`; InputError for what is no number."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise InputError(f"{text!r} is no number; write for example 1.04 or 2e3") from None
    if not abs(value) < float("inf"):
        raise InputError(f"{text!r} is no number; write for example 1.04 or 2e3")
    return value
