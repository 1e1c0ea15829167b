"""`scaling learn`: the guide's quizzes, answered by commands of this project; ladders; an index."""

import json as json_text
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scaling.cli.learn_puzzle import check, show_list, show_task
from scaling.cli.learn_teach import grade_folder, hold_class, teach
from scaling.cli.show import show
from scaling.course.finder.topics import find as find_topics
from scaling.course.ladder.ladders import EXAMPLE, ladder_of
from scaling.course.language import errors_said, said, speaking, t
from scaling.course.lessons.index import labs, lessons, numbered, serve
from scaling.course.quizzes.answered import (
    QuizVerdict,
    answered,
    guess_of,
    guesses_of,
    heading,
    summary,
)
from scaling.course.quizzes.quiz import QuizAnswer, compute, find, quizzes
from scaling.course.sweeps.game import play_sweep, sweep
from scaling.course.web.server import serve as serve_pages
from scaling.meshes.errors import InputError, check_keys
from scaling.questions.page import show as in_unit

PAGES = ("explorer", "quizzes", "sweeps")  # which a server on this machine sends to the browser
TAKES: Mapping[str, tuple[str, ...]] = {  # names of parameters
    "list": ("all", "json"),
    "find": ("name", "run", "all", "json"),
    "lesson": ("name",),
    "lab": ("name",),
    "quiz": ("name", "guess", "all", "json"),
    "ladder": ("name", "guess", "json"),
    "explorer": (),
    "quizzes": (),
    "sweeps": (),
    "sweep": ("name", "tries", "json"),
    "puzzles": ("json",),
    "puzzle": ("name", "start", "json"),
    "check": ("name", "run", "source", "plot", "json"),
    "teach": ("name", "output"),
    "class": ("name", "port"),
    "grade": ("name", "source", "json"),
}
HOW_TO_OPEN = (
    "find a word or symbol of the guide: scaling learn find all-gather\n"
    "open one: scaling learn lesson 1, scaling learn lab 1, scaling learn quiz gpu-q2.3\n"
    "pages in the browser: scaling learn explorer, scaling learn quizzes, scaling learn sweeps\n"
    "puzzles: scaling learn puzzles; measured sweeps: scaling learn sweep\n"
    "for teachers: scaling learn teach 1 --output FOLDER, class 1 --port 8000, grade FOLDER"
)


def learn(
    what: str = "list",
    name: str | None = None,
    run: str | None = None,
    *,
    guess: tuple[str, ...] = (),
    tries: tuple[str, ...] = (),
    all: bool = False,
    start: Path | None = None,
    source: str = "auto",
    plot: Path | None = None,
    output: Path | None = None,
    port: int | None = None,
    lang: str | None = None,
    json: bool = False,
) -> int:
    """Open a lesson, answer a quiz, solve a puzzle, play a sweep, or find a word of the guide.

    Args:
        what: list: all lessons, labs and quizzes; find: what answers a word or symbol of the guide;
            lesson, lab: opens one in the browser; quiz: asks one, and names the mistake that a
            wrong guess may come from; ladder: your guess beside a bound, the textbook's rule, the
            fitted figure, the compiled program and a measurement; explorer, quizzes, sweeps: pages
            in the browser; puzzles: lists all; puzzle: the task of one; check: judges an answer by
            its compiled step; sweep: find the fastest of some dozen measured configurations in five
            tries. For teachers: teach writes a plan, what students get wrong, solutions and slides;
            class collects guesses over the local network; grade judges all answers to puzzles in a
            folder.
        name: a word to find; number of the lesson, lab or puzzle; the quiz; the sweep, or none for
            all; to teach, 1 or "lab 1", or none for all; the folder to grade; or for a ladder a
            command line in quotes, such as "collective all-gather --bytes 1GiB --cluster dgx-h100"
            or "predict tiny --cluster ...".
        run: the answer that check judges, a run.json; or a second word to find.
        guess: a guess for each number that the quiz asks for, in its order; without any you are
            asked. For a ladder: seconds.
        tries: a configuration of the sweep, such as "tensor=2,stage=1,sequences=4"; prints its
            measured step time. One that ran out of memory costs a try too.
        all: quiz: compute all of them, beside what the guide prints; find: show all topics in full.
        start: write the run that a puzzle begins with to this new file.
        source: how check and grade price a step, as for scaling predict.
        plot: draw the step that check judges (.svg).
        output: folder that teach writes to; must be empty or new.
        port: on which class listens, to the whole local network; nothing listens without it.
        lang: language of the course, en or ko; default: that of SCALING_LANG, else en.
    """
    given: dict[str, Any] = {"name": name, "run": run, "guess": guess, "all": all, "start": start}
    given |= {"tries": tries, "source": source != "auto", "plot": plot, "json": json}
    given |= {"output": output, "port": port is not None}
    with speaking(lang), errors_said():
        _check(what, given)
        match what:
            case "explorer" | "quizzes" | "sweeps":
                return serve_pages(f"{what}.html")
            case "lesson" | "lab":
                if name is None:
                    raise InputError(f"write scaling learn {what} 1; scaling learn lists all")
                return serve(numbered(what, name))
            case "ladder":
                if not (name or "").strip() or len(guess) > 1:
                    raise InputError(f"write {EXAMPLE}, with one --guess at most")
                return show(ladder_of(name or "", guess_of(guess[0], "s") if guess else None), json)
            case "sweep":
                return _sweep(name, tries, json)
            case "find":
                return show(find_topics(" ".join(filter(None, (name, run))), all), json)
            case "puzzles":
                return show_list(json)
            case "puzzle":
                return show_task(name, start, json)
            case "check":
                return check(name, run, source, plot, json)
            case "teach":
                return teach(name, output)
            case "class":
                return hold_class(name, port)
            case "grade":
                return grade_folder(name, source, json)
        if all:
            return _compute_all(json)
        return _list(json) if name is None else _quiz(name, guess, json)


def _check(what: str, given: Mapping[str, Any]) -> None:
    """Raise InputError for a word that is none, and for what it does not take."""
    check_keys([what], TAKES, "scaling learn", "word")
    for option, value in given.items():
        if not value or option in TAKES[what]:
            continue
        if what in PAGES:
            raise InputError(f"write scaling learn {what}, and nothing more: it opens a page")
        flag = {"tries": "try"}.get(option, option)
        shown = repr(value) if option in ("name", "run") else f"--{flag}"
        raise InputError(f"scaling learn {what} takes no {shown}; see scaling learn --help")


def _quiz(name: str, given: tuple[str, ...], json: bool) -> int:
    """Print the answer to a quiz, and the mistake in a wrong guess."""
    quiz = find(name)
    guesses = guesses_of(quiz, given)
    if not (json or guesses):
        print(t(quiz.question))
    if not guesses and not json and sys.stdin.isatty():
        guesses = [_asked(answer) for answer in quiz.answers]
    results = answered(quiz, [compute(answer) for answer in quiz.answers], guesses)
    if json:
        document = {"name": quiz.id, "question": quiz.question, "answers": results}
        print(json_text.dumps(document))
        return 0
    for answer, result in zip(quiz.answers, results, strict=True):
        print("\n".join(_lines(answer, result)))
    if quiz.note:
        print(t("note: {note}", note=t(quiz.note)))
    return 0


def _sweep(name: str | None, tries: tuple[str, ...], json: bool) -> int:
    """Print the game after these tries; without a name, what can be played."""
    if name is not None:
        return show(play_sweep(name, tries), json)
    if tries:
        raise InputError("say of which sweep: scaling learn sweep 3.57B-128 --try ...")
    games = [play_sweep(problem.name, ()) for problem in sweep().problems]
    if json:
        print(json_text.dumps([game.to_dict() for game in games], allow_nan=False))
        return 0
    for game in games:
        print(f"sweep {game.problem.line()}")
    print(
        t(
            "play one: scaling learn sweep {name}; or in the browser: scaling learn sweeps",
            name=games[0].problem.name,
        )
    )
    return 0


def _list(json: bool) -> int:
    shelves = {"lesson": lessons(), "lab": labs()}
    if json:
        titles = {
            f"{kind}s": [{"number": one.number, "title": one.title} for one in shelf]
            for kind, shelf in shelves.items()
        }
        rows = [{"id": q.id, "section": q.section, "question": q.question} for q in quizzes()]
        print(json_text.dumps({**titles, "quizzes": rows}))
        return 0
    for kind, shelf in shelves.items():
        for one in shelf:
            print(f"{f'{kind} {one.number:>2}':<11}{t(one.title)}")
    width = max(len(quiz.id) for quiz in quizzes())
    for quiz in quizzes():
        print(f"quiz {quiz.id.ljust(width)}  {quiz.section}")
    print(t(HOW_TO_OPEN))
    return 0


def _compute_all(json: bool) -> int:
    """Print a line for each number, then how many were asked, are right, differ."""
    verdicts = [
        QuizVerdict(quiz, answer, compute(answer)) for quiz in quizzes() for answer in quiz.answers
    ]
    if json:
        print(json_text.dumps([verdict.to_dict() for verdict in verdicts]))
        return 0
    print(heading())
    print("\n".join(map(str, verdicts)))
    print(summary(verdicts))
    return 0


def _lines(answer: QuizAnswer, result: Mapping[str, Any]) -> Iterator[str]:
    name = t(answer.name)
    if "verdict" in result:
        said = {"guess": result["guess"], "verdict": result["verdict"]}
        yield t("{name}: your guess {guess:g}, {verdict}", name=name, **said)
    book = ""
    if answer.book is not None:
        book = t(" (the guide prints {number})", number=in_unit(answer.book, t(answer.unit)))
    yield f"{name}: {in_unit(result['answer'], t(answer.unit))}{book}"
    yield from (f"  $ {command}" for command in result["commands"])
    if answer.reason:
        yield t("  differs: {reason}", reason=t(answer.reason))


def _asked(answer: QuizAnswer) -> float:
    """Return the reader's guess; what is no number is asked for again."""
    while True:
        try:
            asked = f"{t(answer.name)} ({t(answer.unit or 'a ratio')})? "
            return guess_of(input(asked), answer.unit)
        except InputError as error:
            print(said(str(error)))
        except EOFError:
            raise InputError("no guess was given; write --guess X") from None
