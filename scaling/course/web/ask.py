"""What a page may ask: JSON in, JSON out, the same from a server and in a browser's own Python.

    ask('{"what": "quiz", "with": {"id": "gpu-q2.3", "guesses": [2.1]}}') -> '{"answer": {...}}'

A question that cannot be answered as it stands has an error: '{"error": "one clear message"}'.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from scaling.course.web.quizzes import all_quizzes, one_quiz
from scaling.meshes.errors import InputError, check_keys, nearest
from scaling.meshes.reading import parse_json


def _explorer(given: Mapping[str, Any]) -> Any:
    from scaling.course.explorer.answer import answer  # which needs numpy

    return answer(given)


def _programs(given: Mapping[str, Any]) -> Any:
    from scaling.course.explorer.programs import programs

    return programs(given)


# name -> a function of a table of JSON, which returns what JSON holds
ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "quizzes": all_quizzes,
    "quiz": one_quiz,
    "explorer": _explorer,
    "programs": _programs,
}
FORM = '{"what": NAME, "with": {...}}'


def ask(request: str) -> str:
    """Return the answer to a question, or the error that bad input has, as JSON."""
    try:
        what, given = _question(request)
        return json.dumps({"answer": ANSWERS[what](given)}, allow_nan=False)
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
