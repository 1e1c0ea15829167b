"""The check at the entrance: arguments are of the types that a function's annotations state.

sc.train("tiny", devices="8")    InputError: train: devices='8' must be a whole number or None
"""

import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from scaling.meshes.errors import InputError

OPTIONAL = {"jax", "jaxlib", "flax", "optax", "orbax", "grain", "chex", "safetensors", "matplotlib"}
NAMES: Mapping[Any, str] = {  # how messages call a type; others go by their own name
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    Mapping: "a mapping",
    Iterable: "a sequence",
    types.NoneType: "None",
}

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

    @functools.wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        bound = signature.bind(*arguments, **options)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            plain = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if plain and not isinstance(parameter.annotation, str):
                hints = alternatives(parameter.annotation)
                if not any(fits(value, hint) for hint in hints):
                    wanted = " or ".join(", ".join(map(type_words, hints)).rsplit(", ", 1))
                    raise InputError(f"{function.__name__}: {name}={value!r} must be {wanted}")
        try:
            return function(*arguments, **options)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in OPTIONAL:
                raise
            raise InputError(
                f"{function.__name__} needs the package {package}, which is not installed: "
                f"pip install {'orbax-checkpoint' if package == 'orbax' else package}"
            ) from error

    return checked


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union of types, each without its parameters."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    members = typing.get_args(hint) if is_union else (hint,)
    return tuple(typing.get_origin(member) or member for member in members)


def fits(value: Any, hint: Any) -> bool:
    """True if a value is of a type; whole floats are whole numbers, truth values are none."""
    if hint is Any:
        return True
    if hint is Path:
        return isinstance(value, os.PathLike)
    if hint in (int, float):
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number and (hint is float or (math.isfinite(value) and value == int(value)))
    return isinstance(value, hint)


def type_words(hint: Any) -> str:
    """Return how a message calls a type."""
    return NAMES.get(hint) or f"a {hint.__name__}"
