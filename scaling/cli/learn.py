"""`scaling learn`: the guide's quizzes, answered by commands of this project; and ladders."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from scaling.cli import learn_puzzle
from scaling.cli.options import Command, File, PathOrNone, Switch, TextOrNone
from scaling.course.ladder.ladders import EXAMPLE, ladder_of
from scaling.course.lessons.index import lab, labs, lesson, lessons, serve
from scaling.course.quizzes.answered import answered, guess_of, guesses_of
from scaling.course.quizzes.quiz import QuizAnswer, compute, find, quizzes
from scaling.course.quizzes.table import LINE, summary, verdict_of
from scaling.course.web.server import serve as serve_pages
from scaling.meshes.errors import InputError
from scaling.questions.page import show

What = Literal[
    "list", "lesson", "lab", "quiz", "ladder", "explorer", "quizzes", "puzzles", "puzzle", "check"
]
PAGES = ("explorer", "quizzes")  # which a server on this machine sends to the browser
TAKES: Mapping[str, tuple[str, ...]] = {  # names of fields
    "list": ("all", "json"),
    "lesson": ("name",),
    "lab": ("name",),
    "quiz": ("name", "guess", "all", "json"),
    "ladder": ("name", "guess", "json"),
    "explorer": (),
    "quizzes": (),
    "puzzles": ("json",),
    "puzzle": ("name", "start_", "json"),
    "check": ("name", "answer", "source", "plot", "json"),
}
HOW_TO_OPEN = (
    "open one: scaling learn lesson 1, scaling learn lab 1, scaling learn quiz gpu-q2.3\n"
    "pages in the browser: scaling learn explorer, scaling learn quizzes; "
    "puzzles: scaling learn puzzles"
)
Guesses = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="X", help_behavior_hint="(repeatable)")
]


@dataclass(frozen=True)
class LearnCommand(Command):
    """Open a lesson in the browser, ask the guide's quizzes, or climb a ladder of six answers.

    Example: scaling learn quiz gpu-q2.3 --guess 2.1
    """

    what: Annotated[Positional[What], arg(metavar="[WHAT]", help_behavior_hint="")] = "list"
    """list: all lessons, labs and quizzes; lesson, lab: opens one in the browser; quiz: a wrong
    guess is told the mistake that it betrays; ladder: your guess, a bound, the textbook's rule, the
    fitted figure, the compiled program, a measurement; explorer, quizzes: pages in the browser;
    puzzles: all puzzles; puzzle: the task of one; check: judges an answer by its compiled step."""
    name: Annotated[Positional[TextOrNone], arg(metavar="[NAME]", help_behavior_hint="")] = None
    """Number of the lesson, lab or puzzle; the quiz; or for a ladder a command line in quotes, such
    as "collective all-gather --bytes 1GiB --cluster dgx-h100" or "predict tiny --cluster ..."."""
    answer: Annotated[Positional[TextOrNone], arg(metavar="[RUN]", help_behavior_hint="")] = None
    """The answer that check judges, a run.json."""
    guess: Guesses = ()
    """A guess for each number that the quiz asks for, in its order; without any you are asked.
    For a ladder: seconds."""
    all: Switch = False
    """Compute every quiz by its commands, beside what the guide prints."""
    start_: Annotated[PathOrNone, arg(name="start", metavar="PATH", help_behavior_hint="")] = None
    """Write the run that a puzzle begins with to this file, which is not there yet."""
    source: Literal["auto", "analytic", "compiled", "stored"] = "auto"
    """Where the step that check judges comes from, as for scaling predict."""
    plot: File = None
    """Draw the step that check judges (.svg)."""
    json: Switch = False
    """Print one JSON document."""

    @property
    def subject(self) -> str:
        """The lesson, quiz or command line."""
        return self.name or self.what

    def execute(self) -> int:
        """List, ask, open, judge, or compute all."""
        _check_words(self)
        match self.what:
            case "explorer" | "quizzes":
                return serve_pages(f"{self.what}.html")
            case "lesson" | "lab":
                return self._lesson()
            case "ladder":
                return self._ladder()
            case "puzzles":
                return learn_puzzle.show_list(self.json)
            case "puzzle":
                return learn_puzzle.show_task(self.name, self.start_, self.json)
            case "check":
                how = (self.source, self.plot, self.json)
                return learn_puzzle.check(self.name, self.answer, *how)
        if self.all:
            return self._compute_all()
        return self._list() if self.name is None else self._quiz(self.name)

    def _quiz(self, name: str) -> int:
        """Print the answer to a quiz, and what a guess betrays."""
        quiz = find(name)
        guesses = guesses_of(quiz, self.guess)
        if not (self.json or guesses):
            print(quiz.question)
        if not guesses and not self.json and sys.stdin.isatty():
            guesses = [_asked(answer) for answer in quiz.answers]
        results = answered(quiz, [compute(answer) for answer in quiz.answers], guesses)
        if self.json:
            print(json.dumps({"name": quiz.id, "question": quiz.question, "answers": results}))
            return 0
        for answer, result in zip(quiz.answers, results, strict=True):
            print("\n".join(_lines(answer, result)))
        if quiz.note:
            print(f"note: {quiz.note}")
        return 0

    def _ladder(self) -> int:
        """Print the ladder of a command line."""
        if not (self.name or "").strip() or len(self.guess) > 1:
            raise InputError(f"write {EXAMPLE}, with one --guess at most")
        guess = guess_of(self.guess[0]) if self.guess else None
        ladder = ladder_of(self.name or "", guess)
        print(json.dumps(ladder.to_dict()) if self.json else ladder)
        return 0

    def _lesson(self) -> int:
        """Serve a lesson or a lab to this machine's browser, until Ctrl-C."""
        if self.name is None:
            raise InputError(f"write scaling learn {self.what} 1; scaling learn lists all")
        return serve((lesson if self.what == "lesson" else lab)(self.name).file)

    def _list(self) -> int:
        """Print the lessons and the quizzes."""
        if self.json:
            shelves = {"lessons": lessons(), "labs": labs()}
            titles = {
                name: [{"number": one.number, "title": one.title} for one in shelf]
                for name, shelf in shelves.items()
            }
            rows = [{"id": q.id, "section": q.section, "question": q.question} for q in quizzes()]
            print(json.dumps({**titles, "quizzes": rows}))
            return 0
        for one in lessons():
            print(f"lesson {one.number:>2}  {one.title}")
        for one in labs():
            print(f"lab {one.number:>2}     {one.title}")
        width = max(len(quiz.id) for quiz in quizzes())
        for quiz in quizzes():
            print(f"quiz {quiz.id.ljust(width)}  {quiz.section}")
        print(HOW_TO_OPEN)
        return 0

    def _compute_all(self) -> int:
        """Print a line for each number, then how many were asked, are right, differ."""
        verdicts = [
            verdict_of(quiz, answer, compute(answer))
            for quiz in quizzes()
            for answer in quiz.answers
        ]
        if self.json:
            print(json.dumps([verdict.to_dict() for verdict in verdicts]))
            return 0
        print(LINE.format(*("quiz", "number", "ours", "by hand", "guide", "")))
        print("\n".join(map(str, verdicts)))
        print(summary(verdicts))
        return 0


def _check_words(command: Any) -> None:
    """Raise InputError for a word or an option of a `LearnCommand` that would change nothing."""
    what = command.what
    for field in fields(command):
        value = getattr(command, field.name)
        if field.name in ("what", *TAKES[what]) or value == field.default:
            continue
        if what in PAGES:
            raise InputError(f"write scaling learn {what}, and nothing more: it opens a page")
        is_word = field.name in ("name", "answer")
        shown = repr(value) if is_word else f"--{field.name.strip('_')}"
        raise InputError(f"scaling learn {what} takes no {shown}; see scaling learn --help")


def _lines(answer: QuizAnswer, result: Mapping[str, Any]) -> list[str]:
    lines = []
    if "verdict" in result:
        lines.append(f"{answer.name}: your guess {result['guess']:g}, {result['verdict']}")
    book = "" if answer.book is None else f" (the guide prints {show(answer.book, answer.unit)})"
    lines.append(f"{answer.name}: {show(result['answer'], answer.unit)}{book}")
    lines += [f"  $ {command}" for command in result["commands"]]
    return lines + ([f"  differs: {answer.reason}"] if answer.reason else [])


def _asked(answer: QuizAnswer) -> float:
    """Return the reader's guess; what is no number is asked for again."""
    while True:
        try:
            return guess_of(input(f"{answer.name} ({answer.unit or 'a ratio'})? "))
        except InputError as error:
            print(error)
        except EOFError:
            raise InputError("no guess was given; write --guess X") from None
