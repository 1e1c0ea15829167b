"""What a caller says about loops, conditionals and kernels of a program, as the API takes it.

trips     "decode.py:40=512"          | [...] | {"decode.py:40": 512}
branches  "soap.py:12=0.1"            | [...] | {"soap.py:12": 0.1}
          "soap.py:12=every=10"               | {"soap.py:12": "every=10"}
          "route.py:7=0.2,0.3,0.5"            | {"route.py:7": [0.2, 0.3, 0.5]}
kernels   "my_kernel=1e12,bf16"       | [...] | {"my_kernel": Work(flops=1e12, dtype="bf16")}
          "my_kernel"                         | {"my_kernel": "local"}
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scaling.api.inputs import as_texts
from scaling.hlo.user_hints import LOCAL, KernelWork, Shares, Work
from scaling.meshes.errors import InputError
from scaling.meshes.units import parse_real

Trips = Mapping[str, float] | Iterable[str]
Branches = Mapping[str, Shares] | Iterable[str]
Kernels = Mapping[str, KernelWork] | Iterable[str]


def as_hints(
    trips: Trips | None, kernels: Kernels | None, branches: Branches | None
) -> dict[str, Any]:
    """Return what is said, by parameter, as `read_program` takes it; what is not said is left out.

    Raises:
        InputError: a text that is no pair, or whose value is no number.
    """
    said = {
        "trips": _pairs(trips, "--trips", "decode.py:40=512", _number),
        "kernels": _pairs(kernels, "--local", "my_kernel=1e12,bf16", _work),
        "branches": _pairs(branches, "--branches", "soap.py:12=0.1", _shares),
    }
    return {name: hints for name, hints in said.items() if hints}


def _pairs(
    given: Any, option: str, example: str, read: Callable[[str, str], Any]
) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    found = {}
    for text in as_texts(given or (), option, example):
        key, equals, value = text.partition("=")
        if not key or not (value or (option == "--local" and not equals)):
            raise InputError(f"{text!r} is no pair: write NAME=NUMBER, such as {option} {example}")
        if key in found:
            raise InputError(f"{option} says {key} twice; say it once")
        found[key] = read(f"{option} {shlex.quote(text)}", value)
    return found


def _shares(where: str, value: str) -> Any:
    """How often the branches of a conditional run."""
    if value.startswith("every="):
        return value
    shares = [_number(where, share) for share in value.split(",")]
    return shares if len(shares) > 1 else shares[0]


def _work(where: str, value: str) -> Any:
    """The work of a kernel that talks to no other device."""
    if value in ("", LOCAL):
        return LOCAL
    flops, _, dtype = value.partition(",")
    return Work(flops=_number(where, flops), dtype=dtype)


def _number(where: str, value: str) -> float:
    try:
        return parse_real(value)
    except ValueError:
        raise InputError(f"{where}: {value!r} is no number") from None
