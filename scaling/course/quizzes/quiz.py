"""The quizzes: questions of the guide whose answers are computed by the commands of this project.

A file of quizzes (scaling/course/quizzes/chapters/CHAPTER.toml) holds

    [[quiz]]
    id = "gpu-q2.3"
    section = "gpus: quiz 2 Q3"
    question = "How long does ..."
    [[quiz.answer]]
    name = "time"
    unit = "ms"
    ask = "collective all-gather --bytes 512MiB --cluster dgx-h100 --ideal :: time"
    formula = "ask"                   # over what is asked, in SI units; `ask.NAME` names several
    expected = 1.044                  # by hand, with the guide's own inputs; default: as printed
    book = 1.04                       # as printed; absent where the guide prints none
    tolerance = 0.03                  # relative
    reason = ""                       # why ours and the book's differ by more than the tolerance
    mistakes = ["sparse peak: high"]  # scaling.course.quizzes.common_mistakes

`COMMAND :: PATH` is a command line and where its JSON document holds the number: keys, names of
parts and places in lists, joined by `/`; no path: its answer. Where the quiz has a `command`,
`:: PATH` is of that. `tolerance` and `mistakes` of the quiz are those of answers that have none.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from scaling.course.quizzes.command_lines import QUESTIONS, document_of
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.formula import evaluate, substituted
from scaling.meshes.reading import parse_toml
from scaling.meshes.units import FACTORS
from scaling.questions.page import plain

FOLDER = resources.files("scaling.course.quizzes") / "chapters"
CHAPTERS = (
    *("roofline", "tpus", "sharding", "transformers", "training", "applied-training"),
    *("inference", "applied-inference", "profiling", "jax-stuff", "gpus"),
)
SHARED = ("command", "tolerance", "mistakes")  # keys of a quiz that hold for its answers
SIZES = FACTORS["s"] | FACTORS["B"] | FACTORS["B/s"] | FACTORS["FLOP/s"] | FACTORS["Hz"]
SIZES |= {"days": FACTORS["s"]["d"], "billion": 1e9, "million tokens": 1e6}


@dataclass(frozen=True)
class QuizAnswer:
    """One number that a quiz asks for; its fields are the keys above."""

    name: str
    expected: float
    ask: str | Mapping[str, str] = ""  # "COMMAND :: PATH", or several by name
    command: str = ""  # the quiz's
    unit: str = ""
    formula: str = "ask"
    book: float | None = None
    tolerance: float = 0.03
    reason: str = ""
    mistakes: Sequence[str] = ()

    @property
    def asks(self) -> Mapping[str, str]:
        """What is asked, by the names of the formula, each with its whole command line."""
        asks = {"ask": self.ask} if isinstance(self.ask, str) else self.ask
        own = lambda ask: ask and not ask.startswith(":: ")
        return {name: a if own(a) else f"{self.command} {a}".strip() for name, a in asks.items()}

    @property
    def commands(self) -> list[str]:
        """The command lines that answer it, each once."""
        return list(dict.fromkeys(ask.partition(" :: ")[0] for ask in self.asks.values()))

    @property
    def typed(self) -> list[str]:
        """The same as one types them: a part of a question's page is below its first lines."""
        asks = [ask.partition(" :: ") for ask in self.asks.values()]
        whole = {line for line, _, path in asks if path and line.split()[0] in QUESTIONS}
        return [f"scaling {line}{' --all' * (line in whole)}" for line in self.commands]


@dataclass(frozen=True)
class Quiz:
    """A question with the numbers that it asks for."""

    id: str
    section: str
    question: str
    answers: tuple[QuizAnswer, ...]
    note: str = ""
    former_id: str = ""  # what it was called before; `find` takes both

    @property
    def chapter(self) -> str:
        return self.section.partition(":")[0]


@cache
def quizzes() -> tuple[Quiz, ...]:
    """Return all quizzes, in the guide's order."""
    files = {name: FOLDER / f"{name}.toml" for name in CHAPTERS}
    tables = (
        table
        for name, file in files.items()
        if file.is_file()
        for table in parse_toml(file.read_text(encoding="utf-8"), name)["quiz"]
    )
    return tuple(map(_quiz, tables))


def _quiz(table: dict[str, Any]) -> Quiz:
    shared = {key: table.pop(key) for key in SHARED if key in table}
    rows = ({"expected": row.get("book"), **shared, **row} for row in table.pop("answer"))
    return Quiz(answers=tuple(QuizAnswer(**row) for row in rows), **table)


def find(id: str) -> Quiz:
    """Return the quiz of an id, or of a former one; InputError names the nearest id."""
    known = {quiz.id: quiz for quiz in quizzes()}
    former = {quiz.former_id: quiz for quiz in quizzes() if quiz.former_id}
    if id not in known | former:
        raise InputError(f"no quiz is called {id!r}; {nearest(id, known)}")
    return (former | known)[id]


def compute(answer: QuizAnswer) -> float:
    """Return our number, in the unit of the quiz, as its commands print it."""
    values = {}
    for name, ask in answer.asks.items():
        line, _, path = ask.partition(" :: ")
        values[name] = number(document_of(line), path)
    return evaluate(answer.formula, values) / size_of(answer.unit)


def size_of(unit: str) -> float:
    """Return the size of a unit in SI units; of what is counted, such as tokens, 1."""
    return SIZES.get(unit, 1.0)


def formulas(answer: QuizAnswer) -> list[str]:
    """Return the formulas of the textbook that its commands compute, with the numbers put in."""
    found = []
    for ask in answer.asks.values():
        line, _, path = ask.partition(" :: ")
        part = _reach(document_of(line), [key for key in path.split("/") if key])
        if isinstance(part, Mapping) and part.get("formula"):
            numbers = {symbol: plain(value) for symbol, value in part["inputs"].items()}
            found.append(f"{part['formula']} = {substituted(part['formula'], numbers)}")
    return list(dict.fromkeys(found))


def number(document: Any, path: str) -> float:
    """Return the number at a path of a JSON document (see above)."""
    found = _reach(document, [key for key in path.split("/") if key])
    if isinstance(found, Mapping):
        found = found.get("answer")
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InputError(f"no number stands at {path or 'answer'!r} but {str(found)[:80]}")
    return float(found)


def _reach(found: Any, keys: list[str]) -> Any:
    """Return what stands at a path. Names may have a slash, as tokens/s: the longest first."""
    if not keys:
        return found
    for n in range(len(keys), 1, -1):
        with suppress(InputError):
            return _reach(_inner(found, "/".join(keys[:n])), keys[n:])
    return _reach(_inner(found, keys[0]), keys[1:])


def _inner(found: Any, key: str) -> Any:
    if isinstance(found, list) and key.isdigit() and int(key) < len(found):
        return found[int(key)]
    if isinstance(found, Mapping):
        parts = {part["name"]: part for part in found.get("parts", ()) if isinstance(part, Mapping)}
        for known in (found, parts):
            if key in known:
                return known[key]
        raise InputError(f"the answer has no {key!r}; {nearest(key, [*found, *parts])}")
    raise InputError(f"the answer has no {key!r}")
