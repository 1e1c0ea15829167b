"""Constraints on the configurations of a plan: the largest size of an axis, and fixed settings.

    --max-tensor 4    --fixed mesh.stage=1    --fixed remat=none    --fixed batch.microbatches=4

A constraint keeps some configurations of each mesh. Where all together keep none, the fewest of
them that do so are named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from scaling.analytic.step import policies
from scaling.meshes.errors import InputError, check_keys, is_count, whole_number
from scaling.meshes.shape import AXES
from scaling.planning.space import Choices
from scaling.run import Run

GRID = {"batch.microbatches": "microbatches", "sharding.zero_stage": "zero_stage"}
KEYS = (*(f"mesh.{axis}" for axis in AXES), *GRID, "remat")  # what a plan chooses
SHOWN = 12  # values that a message lists at most
Values = Callable[[Choices], np.ndarray]  # of a mesh's configurations: [configurations]


@dataclass(frozen=True)
class Constraint:
    """What configurations must be: an option, and the value that it looks at."""

    text: str  # as it is typed
    values: Values  # of what is constrained
    keeps: Values  # True where a configuration is kept


def largest(axis: str, size: int) -> Constraint:
    """The constraint of an axis to at most so many devices."""
    name = f"max-{axis}"
    most = whole_number(f"--{name}", size)
    values = lambda choices: np.full(choices.count, getattr(choices.mesh, axis))
    return Constraint(f"--{name} {most}", values, lambda choices: values(choices) <= most)


def fixed_settings(run: Run, settings: Mapping[str, object]) -> Iterator[Constraint]:
    """The constraints of settings, by dotted key, to one value each.

    Raises:
        InputError: a plan does not choose this setting, or it has no such value.
    """
    check_keys(settings, KEYS, "--fixed", "key that a plan chooses")
    for key, value in settings.items():
        text = f"--fixed {key}={value}"
        if key == "remat":
            names = [str(policy) for policy in policies(run)]
            check_keys([str(value)], names, "--fixed remat", "policy")
            wanted: object = str(value)
        else:
            wanted = int(value) if isinstance(value, str) and is_count(value) else value
            wanted = whole_number(f"--fixed {key}", wanted, int("zero" not in key))
        values = partial(_values, run, key)
        yield Constraint(text, values, partial(_is, key, values, wanted))


def _values(run: Run, key: str, choices: Choices) -> np.ndarray:
    """The setting of each configuration."""
    if key == "remat":
        names = np.array([str(policy) for policy in policies(run)])
        return names[np.asarray(choices.grid.remat)]
    if key in GRID:
        return np.asarray(getattr(choices.grid, GRID[key]))
    return np.full(choices.count, getattr(choices.mesh, key.removeprefix("mesh.")))


def _is(key: str, values: Values, wanted: object, choices: Choices) -> np.ndarray:
    """True where the setting is as wanted; without fsdp there is no ZeRO stage."""
    free = key == "sharding.zero_stage" and choices.mesh.fsdp == 1
    return (values(choices) == wanted) | free


def pairs_of(texts: Mapping[str, object] | Iterable[str], option: str) -> dict[str, object]:
    """Key -> value of a mapping, or of texts KEY=VALUE.

    Raises:
        InputError: a text without =, or two values of one key.
    """
    if isinstance(texts, Mapping):
        return dict(texts)
    found: dict[str, object] = {}
    for text in [texts] if isinstance(texts, str) else texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not value:
            raise InputError(f"{option} {text!r}: write KEY=VALUE, such as mesh.stage=1")
        if found.setdefault(key, value) != value:
            raise InputError(
                f"{option} {key}={found[key]} and {option} {key}={value} contradict each other"
            )
    return found


def admitted(every: Iterable[Choices], constraints: Sequence[Constraint]) -> Iterator[Choices]:
    """The configurations that all constraints keep."""
    for choices in every:
        kept = np.ones(choices.count, bool)
        for constraint in constraints:
            kept &= constraint.keeps(choices)
        if kept.any():
            yield choices if kept.all() else choices.only(kept)


def contradiction(every: Iterable[Choices], constraints: Sequence[Constraint]) -> str:
    """The fewest constraints that keep no configuration together, in words."""
    spaces = list(every)
    kept = [np.concatenate([c.keeps(each) for each in spaces]) for c in constraints]
    numbers = range(len(constraints))
    sets = (some for size in numbers for some in combinations(numbers, size + 1))
    least = next(some for some in sets if not np.logical_and.reduce([kept[i] for i in some]).any())
    named = [constraints[i] for i in least]
    texts = " and ".join(constraint.text for constraint in named)
    if len(named) > 1:
        return f"{texts} contradict each other: no configuration is as they say; leave one out"
    found = sorted({v for each in spaces for v in named[0].values(each).tolist()})
    listed = ", ".join(
        f"{value:g}" if isinstance(value, float) else str(value) for value in found[:SHOWN]
    )
    return f"{texts}: no configuration is so; there are {listed}" + ", ..." * (len(found) > SHOWN)
