"""The check at the entrance: arguments are of the types that a function's annotations state.

sc.train("tiny", devices="8")    InputError: train: devices='8' must be a whole number or None
"""

import functools
import inspect
import math
import os
import re
import sys
import types
import typing
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from scaling.api.parameters import described
from scaling.api.request import FLAGS, at_the_command_line, literal
from scaling.meshes.errors import InputError
from scaling.meshes.result import Result

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture

OTHER_NAMES = {flag: name for name, flag in FLAGS.items() if name == f"{flag}s"}  # as arguments
# parameters by the options of other names
PARAMETERS = {**{flag: name for name, flag in FLAGS.items()}, "from": "source", "scale": "nodes"}
OPTIONAL = {"jax", "jaxlib", "flax", "optax", "orbax", "grain", "chex", "safetensors", "matplotlib"}
NAMES: Mapping[Any, str] = {  # how messages call a type; others go by their own name
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    typing.Literal: "a text",
    Path: "a path",
    Mapping: "a mapping",
    Iterable: "a sequence",
    types.NoneType: "None",
}

# In a message: a command in backticks, which stays; settings; an option, with its value if one
# stands behind it: a number, a path, a quoted text, a mesh, a name with a dash, or a choice.
VALUE = r"'[^']*'|[^\s;:)`]*[^\s,;:.)`]"
PAIR = rf"[\w.]+=(?:{VALUE})"
PLACE = r"[\w@%+:./-]+"  # of a loop, a conditional or a kernel, unquoted
CHOICE = r"(?:compiled|cost|host|int8|last)\b|\w+-[\w-]+"
OPTION = re.compile(
    rf"`[^`]*`|(?P<pairs>--(?P<table>set|override|option|fixed) {PAIR}(?: --(?P=table) {PAIR})*)"
    rf"|--(?P<hint>trips|branches|local) (?:'(?P<quoted>[^']*)'|(?P<said>{PLACE}=(?:{VALUE})))"
    rf"|--local (?P<local>{PLACE}(?<=\w))"
    rf"|--(?P<name>[a-z][a-z-]*)(?!\w)(?: (?P<value>{PAIR}|'[^']*'|{CHOICE}|\d(?:{VALUE})?))?"
)

P = ParamSpec("P")
T = TypeVar("T")


def entrance(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the function with its arguments checked and missing packages reported.

    Raises:
        InputError: by the function that is returned: an argument of another type than its
            annotation (what is annotated by a text is not checked), or JAX or one of its relatives
            is not installed.
    """
    signature = inspect.signature(function)
    function.__doc__ = described(function)

    @functools.wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        for other, name in OTHER_NAMES.items():
            if other in options and name in signature.parameters and name not in options:
                options[name] = options.pop(other)
        bound = signature.bind(*arguments, **options)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            plain = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if plain and not isinstance(parameter.annotation, str):
                hints = alternatives(parameter.annotation)
                if not any(fits(value, hint) for hint in hints):
                    called = (NAMES.get(hint) or f"a {hint.__name__}" for hint in hints)
                    wanted = " or ".join(", ".join(called).rsplit(", ", 1))
                    raise InputError(f"{function.__name__}: {name}={value!r} must be {wanted}")
        with python_words(), named_packages(function.__name__):
            return function(*arguments, **options)

    return checked


@contextmanager
def named_packages(function: str) -> Iterator[None]:
    """Raise InputError with the name of a missing package that a function needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OPTIONAL:
            raise
        raise InputError(
            f"{function} needs the package {package}, which is not installed: "
            f"pip install {'orbax-checkpoint' if package == 'orbax' else package}"
        ) from error


@contextmanager
def python_words() -> Iterator[None]:
    """Say an InputError in the words of who has called: options where a command is executed."""
    try:
        yield
    except InputError as error:
        error.args = (in_callers_words(str(error)),)
        raise


class Drawn(Result):
    """A result with a picture."""

    @abstractmethod
    def picture(self) -> "Picture":
        """Return the picture, as shapes."""

    def plot(self, path: str | Path) -> None:
        """Write the picture (PNG, SVG or PDF).

        Raises:
            InputError: there is nothing to draw, another suffix, a file that cannot be written.
        """
        from scaling.pictures.files import write_picture

        with python_words():
            write_picture(self.picture(), Path(path))


def in_callers_words(message: str) -> str:
    """Return a message about options as it is for a command, else as one about parameters."""
    return message if at_the_command_line() else in_python(message)


def warn(texts: Iterable[str]) -> None:
    """Warn the caller of a public function, in the caller's words."""
    for text in texts:
        if at_the_command_line():
            print(f"warning: {text}", file=sys.stderr)
        else:
            warnings.warn(in_python(text), stacklevel=4)  # past `entrance`


def in_python(message: str) -> str:
    """Return a message about options as one about parameters.

    `add --cluster, such as --cluster dgx-h100`    `add cluster, such as cluster='dgx-h100'`
    `use --set remat=full`                         `use set={'remat': 'full'}`
    """

    def parameter(hit: re.Match[str]) -> str:
        if hit["pairs"]:
            pairs = re.findall(rf"--[a-z]+ ([\w.]+)=({VALUE})", hit["pairs"])
            name = PARAMETERS.get(hit["table"], hit["table"])
            return f"{name}={literal(name, dict(pairs))}"
        if hit["hint"] or hit["local"]:
            return _hint(hit["hint"] or "local", hit["quoted"] or hit["said"] or hit["local"])
        if not hit["name"]:
            return hit[0]
        name = PARAMETERS.get(hit["name"], hit["name"].replace("-", "_"))
        value = hit["value"]
        if value is None:
            return name
        is_plain = re.fullmatch(r"'.*'|[\d.]+(e[+-]?\d+)?", value)
        return f"{name}={value if is_plain else repr(value)}"

    return OPTION.sub(parameter, message).replace(" MODEL", " model")


def _hint(option: str, text: str) -> str:
    """Return `--branches soap.py:12=0.1` as `branches={'soap.py:12': 0.1}`, words as `...`."""
    key, _, value = text.partition("=")
    if option == "local":
        value = "Work(flops=..., dtype=...)" if value else "'local'"
    elif not re.fullmatch(r"[\d.]+", value):
        value = "[...]" if "," in value else "..."
    return f"{PARAMETERS.get(option, option)}={{{key!r}: {value}}}"


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union of types, each without its parameters."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if is_union else (hint,)
    return tuple(typing.get_origin(member) or member for member in members)


def fits(value: Any, hint: Any) -> bool:
    """True if a value is of a type; whole floats are whole numbers, truth values are none."""
    if hint is Any:
        return True
    if hint is typing.Literal:  # the function says which texts there are
        return isinstance(value, str)
    if hint is Path:
        return isinstance(value, os.PathLike)
    if hint in (int, float):
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number and (hint is float or (math.isfinite(value) and value == int(value)))
    return isinstance(value, hint)
