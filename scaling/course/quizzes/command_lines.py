"""Command lines as the calls of the API that they stand for.

    collective all-gather --bytes 1GiB --cluster dgx-h100 --ideal
    price_collective("all-gather", bytes="1GiB", cluster="dgx-h100", ideal=True)

A quiz states the line that one types. It needs the number, not the printed text, and a page in a
browser has no command line.
"""

import importlib
import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from scaling.api.public_api import PARAMETERS, alternatives
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.units import parse_real, parse_whole

QUESTIONS = ("limits", "serve", "count", "budget", "chip", "kernel", "array")
FUNCTIONS: Mapping[str, str] = {  # command -> module:name
    **{name: f"scaling.api.{name}:{name}" for name in QUESTIONS},
    "collective": "scaling.api.collective:price_collective",
    "cluster": "scaling.course.quizzes.command_lines:shown_cluster",
}
REPEATED = ("set", "overrides")
OF_PRINTING = ("ideal", "switches")  # switches of the command where its function has them not


@cache  # several numbers of a quiz are of one document
def document_of(line: str) -> Mapping[str, Any]:
    """Return the JSON document that a command line prints with `--json`.

    Raises:
        InputError: there is no such command or option, or its function raises it.
    """
    call, switches = _call(line)
    found = call()
    if call.func is shown_cluster:
        from scaling.report.cluster_json import as_json

        printed = as_json(found)
    else:
        printed = _shown(found, switches).to_dict()
    document: Mapping[str, Any] = json.loads(json.dumps(printed))  # a tuple becomes a list
    return document


def page_of(line: str) -> str:
    """Return the text that a command line prints; InputError as `document_of`."""
    call, switches = _call(line)
    found = call()
    if call.func is shown_cluster:
        from scaling.report.cluster import page

        return page(found)
    return str(_shown(found, switches))


def shown_cluster(
    action: str, name: str, nodes: int | None = None, overrides: tuple[str, ...] = ()
) -> Any:
    """Return the cluster that `scaling cluster show` prints."""
    from scaling.api.inputs import load_cluster

    return load_cluster(name, nodes, overrides=overrides)


def _shown(found: Any, switches: list[str]) -> Any:
    from scaling.questions.answer import textbook

    return textbook(found) if "--ideal" in switches else found


def _call(line: str) -> "tuple[partial[Any], list[str]]":
    """Return the call of a command line, and the switches that only its command has."""
    command, *words = shlex.split(line.removeprefix("scaling "))
    if command not in FUNCTIONS:
        raise InputError(f"no quiz asks {command!r}; {nearest(command, FUNCTIONS)}")
    module, _, name = FUNCTIONS[command].partition(":")
    function = getattr(importlib.import_module(module), name)
    parameters = inspect.signature(function).parameters
    switches = [f"--{name}" for name in OF_PRINTING if name not in parameters]
    rest = [word for word in words if word not in switches]
    call = call_of(function, rest, f"scaling {command}")
    return call, [word for word in words if word in switches]


def call_of(function: Callable[..., Any], words: list[str], who: str) -> "partial[Any]":
    """Return the call of a function whose arguments are the words of a command line.

    Args:
        function: its parameters are the options; those words without a flag come first.
        words: behind the name of the command.
        who: takes the options, in messages.

    Raises:
        InputError: an option that the function has not, or a value that is no number.
    """
    parameters = inspect.signature(function).parameters
    arguments: list[str] = []
    options: dict[str, Any] = {}
    rest: Iterator[str] = iter(words)
    for word in rest:
        if not word.startswith("--"):
            arguments.append(word)
            continue
        flag, _, value = word.removeprefix("--").partition("=")
        name = PARAMETERS.get(flag, flag.replace("-", "_"))
        if name not in parameters:
            taken = ", ".join(f"--{name.replace('_', '-')}" for name in parameters)
            raise InputError(f"{who} takes no --{flag}: it has {taken}")
        kinds = alternatives(parameters[name].annotation)
        if bool in kinds:
            options[name] = True
            continue
        value = value or next(rest, "")
        if name in REPEATED:
            options[name] = (*options.get(name, ()), value)
        elif str in kinds or not {int, float} & set(kinds):
            options[name] = value
        else:
            options[name] = parse_whole(value) if int in kinds else parse_real(value)
    return partial(function, *arguments, **options)
