"""A request as it was made, and the command or the call that makes it again with something changed.

    scaling plan hf/config.json --cluster lab.toml --set batch.seq_len=4Ki
    next: scaling predict hf/config.json --cluster lab.toml --set batch.seq_len=4Ki --mesh fsdp=8

A suggestion repeats what was typed: what that was resolved to (the name of a model, of a cluster)
is not always something that can be typed.
"""

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# options of another name than the parameter
FLAGS = {"overrides": "override", "options": "option", "kernels": "local"}
PAIRS = (
    "set",
    "overrides",
    "options",
)  # values by key; on a command line each is an option KEY=VALUE
_TYPED: ContextVar[tuple[str, ...] | None] = ContextVar("typed", default=None)


@contextmanager
def command_line(words: Iterable[str] = ()) -> Iterator[None]:
    """While a command of these words is executed: who reads types options, not arguments."""
    token = _TYPED.set(tuple(words))
    try:
        yield
    finally:
        _TYPED.reset(token)


def at_the_command_line() -> bool:
    """Return whether a command is executed, rather than a function called."""
    return _TYPED.get() is not None


def typed_words() -> list[str]:
    """Return the command line, without `scaling`, for a command that starts itself again."""
    return list(_TYPED.get() or ())


@dataclass(frozen=True)
class Unnamed:
    """An object that was given, which no text names; it is called as its type."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Request:
    """The arguments about a run as they were given, by parameter; the run is the first."""

    arguments: Mapping[str, Any]

    def changed(self, **arguments: Any) -> "Request":
        """Return the request with arguments replaced; of `set` and `overrides` single keys."""
        values = dict(self.arguments)
        for name, value in arguments.items():
            if name in PAIRS:  # new ones last, where they win over a whole table
                kept = {k: v for k, v in values.pop(name, {}).items() if k not in value}
                value = {**kept, **value}
            values[name] = value
        return Request({name: value for name, value in values.items() if value not in (None, {})})

    def words(self, verb: str, *switches: str) -> str:
        """Return the command `scaling VERB ...`, quoted for a shell; in Python `sc.VERB(...)`."""
        (_, run), *rest = self.arguments.items()
        if at_the_command_line():
            typed = [word for item in rest for word in options(*item)]
            return shlex.join(["scaling", verb, str(run), *typed, *switches])
        values = [repr(run), *(f"{name}={literal(name, value)}" for name, value in rest)]
        return f"sc.{verb}({', '.join(values)})"


def request(run: object, **arguments: Any) -> Request:
    """Return the request of a function's arguments; None, False and empty ones say nothing."""
    plain = {name: _plain(name, value) for name, value in {"run": run, **arguments}.items()}
    return Request({n: v for n, v in plain.items() if v is not None and v is not False and v != ()})


def options(name: str, value: Any) -> list[str]:
    """Return a parameter and its value as words of a command line; `set` in key order as given."""
    flag = f"--{FLAGS.get(name, name).replace('_', '-')}"
    if name in PAIRS:
        texts = ((key, v if isinstance(v, str) else json.dumps(v)) for key, v in value.items())
        return [word for key, text in texts for word in (flag, f"{key}={text}")]
    if value is True:
        return [flag]
    return [w for v in (value if isinstance(value, tuple) else (value,)) for w in (flag, str(v))]


def change_words(set: Mapping[str, Any], mesh: object | None) -> str:
    """Return settings and a mesh as options of a command line, or in Python as arguments."""
    given = {name: v for name, v in (("mesh", mesh and str(mesh)), ("set", set)) if v}
    if at_the_command_line():
        return shlex.join(word for item in given.items() for word in options(*item))
    return ", ".join(f"{name}={literal(name, value)}" for name, value in given.items())


def _plain(name: str, value: Any) -> Any:
    """Return an argument as text, number, or table of them."""
    if name in PAIRS:
        texts = [value] if isinstance(value, str) else value or ()
        pairs = texts.items() if isinstance(texts, Mapping) else (t.split("=", 1) for t in texts)
        return {str(key).strip(): v for key, v in pairs} or None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "mesh" and isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Iterable) and name != "run":
        return ",".join(value) if name == "device_order" else tuple(value)
    if name == "mesh":
        return str(value)
    return Unnamed(type(value).__name__.lower().removesuffix("result"))


def literal(name: str, value: Any) -> str:
    """Return a value as Python has it; a setting that was typed is read as JSON where it is."""
    return repr({key: _read(v) for key, v in value.items()} if name == "set" else value)


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
