"""Command lines as the calls of the API that they stand for.

    collective all-gather --bytes 1GiB --cluster dgx-h100 --ideal
    price_collective("all-gather", bytes="1GiB", cluster="dgx-h100", ideal=True)

A quiz states the line that one types. It needs the number, not the printed text, and a page in a
browser has no command line.
"""

import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pkgutil import resolve_name
from typing import Any

from scaling.api.public_api import PARAMETERS, alternatives
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.units import parse_real, parse_whole

QUESTIONS = ("limits", "serve", "count", "budget", "chip", "kernel", "array")
FUNCTIONS: Mapping[str, str] = {  # command -> module:name
    **{name: f"scaling.api.{name}:{name}" for name in QUESTIONS},
    "collective": "scaling.api.collective:price_collective",
    "price": "scaling.course.quizzes.command_lines:priced_text",
    "cluster": "scaling.course.quizzes.command_lines:ShownCluster",
}
REPEATED = ("set", "overrides")
OF_PRINTING = ("ideal", "switches")  # switches of the command where its function has them not


class ShownCluster:
    """What `scaling cluster show` prints."""

    def __init__(
        self, action: str, name: str, nodes: int | None = None, overrides: tuple[str, ...] = ()
    ) -> None:
        from scaling.api.inputs import load_cluster

        self.cluster = load_cluster(name, nodes, overrides=overrides)

    def to_dict(self) -> dict[str, Any]:
        from scaling.report.cluster_json import as_json

        return as_json(self.cluster)

    def line(self) -> str:
        return str(self).partition("\n")[0]

    def __str__(self) -> str:
        from scaling.report.cluster import page

        return page(self.cluster)


def priced_text(hlo: str, cluster: str, mesh: str | None = None) -> Any:
    """Return what `scaling price --hlo` prints."""
    from scaling.api.hlo import predict_hlo

    return predict_hlo(hlo, cluster, mesh=mesh)


@cache  # several numbers of a quiz are of one document
def document_of(line: str) -> Mapping[str, Any]:
    """Return the JSON document that a command line prints with `--json`.

    Raises:
        InputError: there is no such command or option, or its function raises it.
    """
    document: Mapping[str, Any] = json.loads(json.dumps(result_of(line).to_dict()))
    return document  # in which tuples are lists


def result_of(line: str) -> Any:
    """Return the result whose text a command line prints; InputError as `document_of`."""
    command, *words = shlex.split(line.removeprefix("scaling "))
    if command not in FUNCTIONS:
        raise InputError(f"no quiz asks {command!r}; {nearest(command, FUNCTIONS)}")
    function = resolve_name(FUNCTIONS[command])
    parameters = inspect.signature(function).parameters
    switches = {f"--{name}" for name in OF_PRINTING if name not in parameters}
    rest = [word for word in words if word not in switches]
    found = call_of(function, rest, f"scaling {command}")()
    from scaling.questions.answer import textbook

    return textbook(found) if "--ideal" in switches & set(words) else found


def call_of(function: Callable[..., Any], words: list[str], who: str) -> "partial[Any]":
    """Return the call of a function whose arguments are the words of a command line.

    Words without a flag come first; `who` takes the options, in messages.

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
