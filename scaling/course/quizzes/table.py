"""The table of all quizzes: our number, the one by hand, the guide's, and whether they agree."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scaling.course.quizzes.quiz import Quiz, QuizAnswer

LINE = "{:<22} {:<28} {:>12} {:>12} {:>12}  {}"


@dataclass(frozen=True)
class QuizVerdict:
    """One number of a quiz beside what is expected; in the unit of the quiz."""

    quiz: str
    name: str
    ours: float
    expected: float
    book: float | None
    as_expected: bool  # ours and the one by hand agree within the tolerance
    as_printed: bool  # ours and the guide's agree within the tolerance; True where it prints none
    reason: str

    @property
    def word(self) -> str:
        """right, "differs" (with a reason), or "wrong"."""
        if self.as_expected and self.as_printed:
            return "right"
        return "differs" if self.reason else "wrong"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON has it."""
        return asdict(self) | {"verdict": self.word}

    def __str__(self) -> str:
        """Return a line of the table."""
        printed = "-" if self.book is None else f"{self.book:.5g}"
        word = self.word + (f": {self.reason}" if self.word == "differs" else "")
        numbers = (f"{self.ours:.5g}", f"{self.expected:.5g}", printed)
        return LINE.format(self.quiz, self.name, *numbers, word).rstrip()


def verdict_of(quiz: Quiz, answer: QuizAnswer, ours: float) -> QuizVerdict:
    """Return our number beside the one by hand and the guide's."""
    book = answer.book
    agrees = book is None or near(ours, book, answer.tolerance)
    expected = near(ours, answer.expected, answer.tolerance)
    words = (quiz.id, answer.name, ours, answer.expected, book)
    return QuizVerdict(*words, expected, agrees, answer.reason)


def near(value: float, other: float, tolerance: float) -> bool:
    """True if two numbers differ by no more than a share of the second."""
    return abs(value - other) <= tolerance * abs(other) + 1e-12 * abs(other)


def summary(verdicts: Sequence[QuizVerdict]) -> str:
    """Return one line: how many quizzes and numbers, how many are right, how many differ."""
    words = Counter(verdict.word for verdict in verdicts)
    names = len({verdict.quiz for verdict in verdicts})
    counts = f"{words['right']} right, {words['differs']} differ with a reason"
    return f"{names} quizzes, {len(verdicts)} numbers: {counts}, {words['wrong']} wrong"
