"""What a page may ask: JSON in, JSON out, the same from a server and in a browser's own Python.

    ask('{"what": "quiz", "with": {"id": "gpu-q2.3"}, "lang": "ko"}') -> '{"answer": {...}}'

A question that cannot be answered as it stands has an error: '{"error": "one clear message"}'. A
site brings the answers to all questions but those of changed figures (`experiments.site`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pkgutil import resolve_name
from textwrap import shorten
from typing import Any

from scaling.course.language import errors_said, speaking, t
from scaling.course.quizzes.answered import LONGEST
from scaling.course.quizzes.common_mistakes import FAR, NEAR, possible_mistakes
from scaling.course.quizzes.quiz import QuizAnswer, compute, find, formulas, quizzes
from scaling.course.sweeps.game import FILE as SWEEPS
from scaling.meshes.errors import InputError, check_keys, nearest
from scaling.meshes.reading import parse_json, read_json
from scaling.questions.page import show


def all_quizzes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return id, chapter, section, question, and name and unit of the numbers of each quiz."""
    check_keys(given, (), "quizzes")
    return [
        {
            **{"id": quiz.id, "chapter": quiz.chapter, "section": quiz.section},
            "question": t(quiz.question),
            "numbers": [
                {"name": t(answer.name), "unit": t(answer.unit)} for answer in quiz.answers
            ],
        }
        for quiz in quizzes()
    ]


def all_sweeps(given: Mapping[str, Any]) -> Any:
    """Return the measured sweeps, as their file has them."""
    check_keys(given, (), "sweeps")
    found = read_json(SWEEPS)
    choosers = {name: t(words) for name, words in found["choosers"].items()}
    return found | {"about": t(found["about"]), "choosers": choosers}


def one_quiz(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return our numbers of a quiz with the guide's, and what a page needs to judge a guess.

    Args:
        given: `id`.
    """
    check_keys(given, ("id",), "quiz")
    quiz = find(shorten(str(given.get("id", "")), LONGEST))
    return {
        **{"id": quiz.id, "note": quiz.note and t(quiz.note), "near": NEAR},
        "far": [(least, t(by)) for least, by in FAR],
        "numbers": [_number(answer) for answer in quiz.answers],
    }


def _number(answer: QuizAnswer) -> dict[str, Any]:
    ours, book = compute(answer), answer.book
    return {
        **{"name": t(answer.name), "answer": ours, "tolerance": answer.tolerance},
        **{"shown": show(ours, t(answer.unit)), "reason": answer.reason and t(answer.reason)},
        "book_shown": None if book is None else show(book, t(answer.unit)),
        "commands": answer.typed,
        "formulas": formulas(answer),
        "mistakes": [asdict(one) for one in possible_mistakes(answer.mistakes)],
    }


# name -> module:name of a function of a table of JSON, which returns what JSON holds
ANSWERS: Mapping[str, str] = {
    "quizzes": "scaling.course.web.ask:all_quizzes",
    "quiz": "scaling.course.web.ask:one_quiz",
    "sweeps": "scaling.course.web.ask:all_sweeps",
    "search": "scaling.course.web.search:all_entries",
    "explorer": "scaling.course.explorer.answer:answer",  # which needs numpy
    "programs": "scaling.course.explorer.programs:programs",
    "splits": "scaling.course.explorer.splits:splits",
}
FORM = '{"what": NAME, "with": {...}}'


def ask(request: str) -> str:
    """Return the answer to a question, or the error that bad input has, as JSON."""
    try:
        what, given, spoken = _question(request)
        with speaking(spoken), errors_said():
            return json.dumps({"answer": resolve_name(ANSWERS[what])(given)}, allow_nan=False)
    except InputError as error:
        return json.dumps({"error": str(error)})


def _question(request: str) -> tuple[str, Mapping[str, Any], str]:
    """Return the name of what is asked, what goes with it, and the language of the answer."""
    question = parse_json(request, "the question")
    if not isinstance(question, dict) or not isinstance(question.get("what"), str):
        raise InputError(f"a question is written {FORM}")
    check_keys(question, ("what", "with", "lang"), "the question")
    what, given = question["what"], question.get("with", {})
    if what not in ANSWERS:
        raise InputError(f"nothing answers {what[:80]!r}; {nearest(what[:80], ANSWERS)}")
    if not isinstance(given, dict):
        raise InputError(f"what goes with {what!r} is a table of keys: {FORM}")
    return what, given, str(question.get("lang", "en"))
