"""Checks that the figures of a calibration file are possible, key by key.

    efficiency, sustained, stream, best ...  above 0, at most 1
    executed                                 from 0 to 1
    most (of a loss)                         above 0, below 1
    peaks, bandwidths, other rates           above 0
    times, sizes, errors, raw measurements   not negative
    ranks, groups                            at least 1

None stands for a figure that a fit does not have, and is not checked.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from scaling.meshes.errors import InputError
from scaling.profiles.profile import Profile

Rule = tuple[Callable[[float], bool], str]
FRACTION: Rule = (lambda value: 0 < value <= 1, "above 0 and at most 1")
LOSS: Rule = (lambda value: 0 < value < 1, "above 0 and below 1")
RATE: Rule = (lambda value: value > 0, "above 0")
COUNT: Rule = (lambda value: value >= 1, "at least 1")
SHARE: Rule = (lambda value: 0 <= value <= 1, "from 0 to 1")
AMOUNT: Rule = (lambda value: value >= 0, "at least 0")
RULES = {
    **dict.fromkeys(("efficiency", "sustained", "stream", "best", "memory"), FRACTION),
    "executed": SHARE,
    "most": LOSS,
    **dict.fromkeys(("peak", "bandwidth", "cache_bandwidth", "fresh_bandwidth", "load"), RATE),
    **dict.fromkeys(("flops", "transcendentals", "slowdown"), RATE),
    **dict.fromkeys(("ranks", "groups"), COUNT),
}


def check_figures(profile: Profile, where: str) -> None:
    """Raise InputError for the first impossible figure; `where` names the file."""
    for path, key, value in _figures(profile, "", ""):
        is_possible, text = RULES.get(key, AMOUNT)
        if not is_possible(value):
            raise InputError(f"{where}: {path}={value:g} must be {text}; measure again")


def _figures(value: Any, path: str, key: str) -> Iterator[tuple[str, str, float]]:
    """(path, key, number) of every number in a profile; a raw measurement has no key."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            inner = f"{path}: {field.name}" if path else field.name
            inside = _figures(getattr(value, field.name), inner, field.name)
            raw = path.startswith("samples")
            yield from ((p, "" if raw else k, n) for p, k, n in inside)
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _figures(part, f"{path}[{i}]", key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, key, value
