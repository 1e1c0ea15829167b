"""The pytest plugin: a fixture that compiles a step and holds its price against a stored one.

    def test_price(scaling_guard):
        scaling_guard(make, cluster="dgx-h100", mesh="data=8,model=8")

The base lies beside the test, in scaling_guard/MODULE/TEST.json; `pytest --scaling-update` writes
it. pytest imports this module at its start: neither jax nor the engine is imported before a test
calls the fixture.
"""

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

UPDATE = "--scaling-update"
FOLDER = "scaling_guard"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the bases."""
    text = "write the prices of this code as the bases of scaling_guard"
    parser.getgroup("scaling").addoption(UPDATE, action="store_true", help=text)


@pytest.fixture
def scaling_guard(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that fails the test where a step's price grew by more than it may.

    scaling_guard(make, cluster="dgx-h100", mesh="data=8", fail_if="time>5%,peak>2%,flops>1%")

    It takes what `scaling price FILE.py:make` does, that text or the function; or what
    `sc.predict_step` does, the step and its arguments; or a prediction. It returns the prediction.
    Each call in a test has a base of its own.
    """
    _, _, name = request.node.nodeid.partition("::")  # with the test's classes
    plain = re.sub(r"[^\w.=-]+", "-", name.removesuffix("]"))
    told = re.fullmatch(r"[\w.=:-]+(\[[\w.=-]+\])?", name)  # else another name may look like it
    name = plain if told else f"{plain}-{zlib.crc32(name.encode()):08x}"
    folder = Path(request.node.path).parent / FOLDER / Path(request.node.path).stem
    calls: list[Path] = []

    def hold(step: Any, *arguments: Any, fail_if: str | None = None, **options: Any) -> Any:
        from scaling.api.diff import guard
        from scaling.api.result import PredictionResult
        from scaling.api.script import price_made
        from scaling.api.step import predict_step
        from scaling.meshes.errors import reworded

        base = folder / (f"{name}-{len(calls) + 1}.json" if calls else f"{name}.json")
        calls.append(base)
        is_update = request.config.getoption(UPDATE)
        if not is_update and not base.exists():
            pytest.fail(f"there is no base {base}: run pytest {UPDATE} once", pytrace=False)
        is_text = isinstance(step, str)  # which has a method `lower` too
        if isinstance(step, PredictionResult):
            prediction = step
        elif arguments or (not is_text and (hasattr(step, "lower") or hasattr(step, "as_text"))):
            prediction = predict_step(step, *arguments, **options)
        else:
            prediction = price_made(step, **options)
        if is_update:
            base.parent.mkdir(parents=True, exist_ok=True)
            prediction.save(base)
            return prediction
        with reworded(after=f"; here: pytest {UPDATE}"):
            held = guard(prediction, base, fail_if)
        if held.exceeded:
            pytest.fail(f"{held}\n\nif it is meant: pytest {UPDATE}", pytrace=False)
        return prediction

    return hold
