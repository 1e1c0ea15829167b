"""Lessons and labs, run once for all tests of a process."""

import importlib
from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path

import pytest

import scaling.course.lessons.notebooks

FOLDER = Path(next(iter(scaling.course.lessons.notebooks.__path__)))
LESSONS = sorted(path.stem for path in FOLDER.glob("lesson_*.py"))
LABS = sorted(path.stem for path in FOLDER.glob("lab_*.py"))
NOTEBOOKS = [*LESSONS, *LABS]


@cache
def ran(name: str) -> tuple[tuple[object, ...], dict[str, object]]:
    """Outputs of all cells, and what they define."""
    pytest.importorskip("marimo", reason="lessons are marimo notebooks: pip install '.[lessons]'")
    module = importlib.import_module(f"scaling.course.lessons.notebooks.{name}")
    outputs, definitions = module.app.run()
    return outputs, dict(definitions)


def of(name: str) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """A test whose parameters are what the cells of a notebook define."""

    def decorated(claim: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            definitions = ran(name)[1]
            claim(**{key: definitions[key] for key in signature(claim).parameters})

        test.__name__, test.__doc__ = claim.__name__, claim.__doc__
        return test

    return decorated
