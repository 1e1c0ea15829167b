"""What `scaling learn` takes beside each of its words; all else would change nothing."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from scaling.meshes.errors import InputError

PAGES = ("explorer", "quizzes")  # which a server on this machine sends to the browser
TAKES: Mapping[str, tuple[str, ...]] = {  # names of fields
    "list": ("all", "json"),
    "lesson": ("name",),
    "lab": ("name",),
    "quiz": ("name", "guess", "all", "json"),
    "ladder": ("name", "guess", "json"),
    "explorer": (),
    "quizzes": (),
    "puzzles": ("json",),
    "puzzle": ("name", "start_", "json"),
    "check": ("name", "answer", "source", "plot", "json"),
}


def check_words(command: Any) -> None:
    """Raise InputError for a word or an option of a `LearnCommand` that would change nothing."""
    what = command.what
    for field in fields(command):
        value = getattr(command, field.name)
        if field.name in ("what", *TAKES[what]) or value == field.default:
            continue
        if what in PAGES:
            raise InputError(f"write scaling learn {what}, and nothing more: it opens a page")
        is_word = field.name in ("name", "answer")
        shown = repr(value) if is_word else f"--{field.name.strip('_')}"
        raise InputError(f"scaling learn {what} takes no {shown}; see scaling learn --help")
