"""The language of the course: English as the sources have it, or that of a catalogue, `ko.po`.

    t("{n:,} tokens of one chip", n=4096)      the text, or its translation, with the fields put in
    said("did you mean 'ring'?")               what the engine said, by the text that it filled

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
from html import escape, unescape
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from scaling.meshes.errors import InputError

LANGUAGES: Mapping[str, str] = {"en": "English", "ko": "한국어"}  # the first one needs no catalogue
VARIABLE = "SCALING_LANG"  # of the environment
FIELD = re.compile(
    r"(?<!\{)\{(?!\{)[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
)  # of a text, as an f-string has it
DRAWN = re.compile(r"(<(?:text|title)\b[^>]*>)([^<]+)")  # words of an SVG
FORMATTED = ("{format_memory(", "{format_rate(", "{format_size(", "{format_time(")
QUANTITY = r"((?:inf|[-+\d.,e]+) \S+)"  # as those write one: `12 ms`
PATTERN = "pattern"  # flag of texts that the engine fills: said() finds them by what they say
ENTRY = re.compile(
    r'^(?:#, (\w+)\n)?msgid ((?:"[^\n]*"\n)+)msgstr ((?:"[^\n]*"(?:\n|\Z))+)', re.MULTILINE
)
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


def said(text: str) -> str:
    """Return a text that the engine or an error has filled, in the language that is spoken."""
    known = catalogue(language())
    if text in known:
        return known[text]
    for pattern, fields, other in _patterns(language()):
        if found := pattern.fullmatch(text):
            for field, value in zip(fields, found.groups(), strict=True):
                other = other.replace(field, said(value))
            return other
    return text


def padded(text: str, width: int) -> str:
    """Return a text with spaces behind it up to so many columns of a terminal; Hangul takes two."""
    return text + " " * (width - columns(text))


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def svg_said(svg: str) -> str:
    """Return an SVG with its words in the language that is spoken."""
    return DRAWN.sub(lambda found: found[1] + escape(said(unescape(found[2]))), svg)


@contextmanager
def errors_said() -> Iterator[None]:
    """Raise the InputErrors of the block in the language that is spoken."""
    try:
        yield
    except InputError as error:
        raise InputError(said(str(error))) from None


@cache
def catalogue(name: str) -> Mapping[str, str]:
    """Return English text -> text of a language; empty for English."""
    if name == "en":
        return {}
    return entries(_file(name))


@cache
def _patterns(name: str) -> list[tuple[re.Pattern[str], list[str], str]]:
    """Return patterns of what the engine fills, their fields and translations; longest first."""
    found = {} if name == "en" else entries(_file(name), PATTERN)
    words = lambda english: len(FIELD.sub("", english))
    pieces = lambda english: re.split(f"({FIELD.pattern})", english)
    return [
        (
            re.compile("".join(map(_expression, pieces(english))), re.DOTALL),
            FIELD.findall(english),
            found[english],
        )
        for english in sorted(found, key=words, reverse=True)
    ]


def _expression(piece: str) -> str:
    """Return what a piece of a pattern matches: itself, a quantity or, in another field, all."""
    other = "(.*)" if FIELD.fullmatch(piece) else re.escape(piece)
    return QUANTITY if piece.startswith(FORMATTED) else other


def entries(po: str, flag: str = "") -> dict[str, str]:
    """Return msgid -> msgstr of a catalogue, or of its texts with a flag; its head stays out."""
    every = (found for found in ENTRY.finditer(po) if flag in ("", found[1]))
    found = {_joined(found[2]): _joined(found[3]) for found in every}
    return {english: other for english, other in found.items() if english and other}


def _file(name: str) -> str:
    return Path(__file__).with_name(f"{name}.po").read_text(encoding="utf-8")


def _joined(lines: str) -> str:
    return "".join(map(json.loads, lines.splitlines()))  # the escapes that we write are JSON's


def _known(name: str, where: str) -> str:
    if name not in LANGUAGES:
        raise InputError(f"{where}={name!r} is no language of the course; write en or ko")
    return name
