"""What a page may ask: JSON in, JSON out, the same from a server and in a browser's own Python.

    ask('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": [2.1]}}') -> '{"answer": {...}}'

A question that cannot be answered as it stands has an error: '{"error": "one clear message"}'.

Our numbers of a quiz are those of its command lines. The site brings them, as they were when it was
made, in `answers.json`: a browser's own Python is slow to start.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from textwrap import shorten
from typing import Any

from scaling.course.quizzes.answered import LONGEST, answered, guesses_of
from scaling.course.quizzes.quiz import Quiz, compute, find, formulas, quizzes
from scaling.meshes.errors import InputError, check_keys, nearest
from scaling.meshes.reading import parse_json, read_json
from scaling.questions.page import show

COMPUTED = Path(__file__).with_name("answers.json")  # of a site; absent in an installation


def all_quizzes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return id, chapter, section, question, and name and unit of the numbers of each quiz."""
    check_keys(given, (), "quizzes")
    return [
        {
            **{"id": quiz.id, "chapter": quiz.chapter, "section": quiz.section},
            "question": quiz.question,
            "numbers": [{"name": answer.name, "unit": answer.unit} for answer in quiz.answers],
        }
        for quiz in quizzes()
    ]


def one_quiz(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict of each guess, and our number with the guide's, commands and reason.

    Args:
        given: `id`, and `guesses`: a number, its text, or null for each number asked for.
    """
    check_keys(given, ("id", "guesses"), "quiz")
    quiz, written = find(shorten(str(given.get("id", "")), LONGEST)), given.get("guesses", [])
    if not isinstance(written, list):
        raise InputError("guesses is a list of numbers, [1.04]")
    guesses = guesses_of(quiz, written)
    ours = _ours(quiz.id)
    rows = answered(quiz, [row["ours"] for row in ours], guesses)
    for row, own in zip(rows, ours, strict=True):
        row["formulas"] = own["formulas"]
        row["shown"] = show(row["answer"], row["unit"])
        row["book_shown"] = None if row["book"] is None else show(row["book"], row["unit"])
    return {"id": quiz.id, "numbers": rows, "note": quiz.note}


@cache
def _ours(id: str) -> list[dict[str, Any]]:
    """Return what is computed of a quiz: from the site's file, or here."""
    if COMPUTED.is_file():
        rows: list[dict[str, Any]] = read_json(COMPUTED)[id]
        return rows
    return computed(find(id))


def computed(quiz: Quiz) -> list[dict[str, Any]]:
    """Return our number (`ours`) and `formulas` of each number of a quiz, by its command lines."""
    return [{"ours": compute(answer), "formulas": formulas(answer)} for answer in quiz.answers]


# name -> module:name of a function of a table of JSON, which returns what JSON holds
ANSWERS: Mapping[str, str] = {
    "quizzes": "scaling.course.web.ask:all_quizzes",
    "quiz": "scaling.course.web.ask:one_quiz",
    "explorer": "scaling.course.explorer.answer:answer",  # which needs numpy
    "programs": "scaling.course.explorer.programs:programs",
}
FORM = '{"what": NAME, "with": {...}}'


def ask(request: str) -> str:
    """Return the answer to a question, or the error that bad input has, as JSON."""
    try:
        what, given = _question(request)
        return json.dumps({"answer": resolve_name(ANSWERS[what])(given)}, allow_nan=False)
    except InputError as error:
        return json.dumps({"error": str(error)})


def _question(request: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name of what is asked and what goes with it."""
    question = parse_json(request, "the question")
    if not isinstance(question, dict) or not isinstance(question.get("what"), str):
        raise InputError(f"a question is written {FORM}")
    check_keys(question, ("what", "with"), "the question")
    what, given = question["what"], question.get("with", {})
    if what not in ANSWERS:
        raise InputError(f"nothing answers {what[:80]!r}; {nearest(what[:80], ANSWERS)}")
    if not isinstance(given, dict):
        raise InputError(f"what goes with {what!r} is a table of keys: {FORM}")
    return what, given
