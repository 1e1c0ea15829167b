"""What holds for every answer."""

import json
import math

import pytest

from scaling.meshes.formula import evaluate, symbols
from scaling.questions.answer import Answer


def check(answer: Answer) -> Answer:
    """Assert that the formula of an answer and of all its parts gives its textbook number."""
    document = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert {"answer", "unit", "formula", "inputs", "binds", "section"} <= document.keys()
    assert answer.section, "the guide's section is missing"
    assert str(answer)
    _check(answer)
    return answer


def _check(answer: Answer) -> None:
    if answer.formula:
        values = {i.symbol: i.value for i in answer.inputs}
        assert set(symbols(answer.formula)) <= values.keys()
        if answer.ideal is not None:
            given = float(answer.ideal)
            assert evaluate(answer.formula, values) == pytest.approx(given, rel=1e-6)
    for value in (answer.answer, answer.ideal, answer.fitted):
        assert not isinstance(value, float) or math.isfinite(value), answer.name
    for part in answer.parts:
        _check(part)
