"""The language of the course: English as the sources have it, or that of a catalogue, `ko.po`.

    t("{n:,} tokens of one chip", n=4096)      the text, or its translation, with the fields put in

Lessons are translated whole instead, before they run (`scaling.course.lessons.translated`), so that
their texts stay f-strings. `python -m experiments.messages` brings the catalogue up to date.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError

LANGUAGES: Mapping[str, str] = {"en": "English", "ko": "한국어"}  # the first one needs no catalogue
VARIABLE = "SCALING_LANG"  # of the environment
ENTRY = re.compile(r'^msgid ((?:"[^\n]*"\n)+)msgstr ((?:"[^\n]*"(?:\n|\Z))+)', re.MULTILINE)
_spoken: ContextVar[str | None] = ContextVar("spoken", default=None)


def language() -> str:
    """Return the language that is spoken: of `speaking`, else of SCALING_LANG, else "en"."""
    return _spoken.get() or _known(os.environ.get(VARIABLE) or "en", VARIABLE)


@contextmanager
def speaking(name: str | None) -> Iterator[None]:
    """Speak a language within the block; None changes nothing."""
    token = _spoken.set(_known(name, "lang") if name else _spoken.get())
    try:
        yield
    finally:
        _spoken.reset(token)


def t(text: str, **fields: Any) -> str:
    """Return a text in the language that is spoken, with the fields put in."""
    found = catalogue(language()).get(text, text)
    return found.format(**fields) if fields else found


@cache
def catalogue(name: str) -> Mapping[str, str]:
    """Return English text -> text of a language; empty for English."""
    if name == "en":
        return {}
    return entries(Path(__file__).with_name(f"{name}.po").read_text(encoding="utf-8"))


def entries(po: str) -> dict[str, str]:
    """Return msgid -> msgstr of a catalogue without contexts and plurals; its head stays out."""
    found = {_joined(found[1]): _joined(found[2]) for found in ENTRY.finditer(po)}
    return {english: other for english, other in found.items() if english and other}


def _joined(lines: str) -> str:
    return "".join(map(json.loads, lines.splitlines()))  # the escapes that we write are JSON's


def _known(name: str, where: str) -> str:
    if name not in LANGUAGES:
        raise InputError(f"{where}={name!r} is no language of the course; write en or ko")
    return name
