"""Constraints on the configurations of a plan: the largest size of an axis, and fixed settings.

    --max-tensor 4    --fixed mesh.stage=1    --fixed remat=none    --fixed batch.microbatches=4

A constraint says which values of one setting are allowed: a space has no others. Where several
leave none, the fewest of them that do so are named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import eq
from typing import Any, TypeVar

from scaling.analytic.software import traits_of
from scaling.analytic.step import check_recomputed, policies
from scaling.meshes.errors import InputError, check_keys, is_count, whole_number
from scaling.meshes.shape import AXES
from scaling.run import Run

# Of which a mesh has several.
PARTIAL = "pipeline.remat_layers"
SETTINGS = ("batch.microbatches", "sharding.zero_stage", "remat", PARTIAL)
KEYS = (*(f"mesh.{axis}" for axis in AXES), *SETTINGS)  # what a plan chooses
SHOWN = 12  # values that a message lists at most
T = TypeVar("T")


@dataclass(frozen=True)
class Constraint:
    """The values that one setting may have."""

    text: str  # as it is typed
    key: str  # of KEYS
    allows: Callable[[Any], bool]


def allowed(constraints: Sequence[Constraint], key: str, values: Iterable[T]) -> list[T]:
    """The values of a setting that all constraints allow."""
    own = [constraint for constraint in constraints if constraint.key == key]
    return [value for value in values if all(one.allows(value) for one in own)]


def largest(axis: str, size: int) -> Constraint:
    """The constraint of an axis to at most so many devices."""
    most = whole_number(f"--max-{axis}", size)
    return Constraint(f"--max-{axis} {most}", f"mesh.{axis}", lambda n: n <= most)


def fixed_settings(run: Run, settings: Mapping[str, object]) -> Iterator[Constraint]:
    """The constraints of settings, by dotted key, to one value each.

    Raises:
        InputError: a plan does not choose this setting, or it has no such value.
    """
    check_keys(settings, KEYS, "--fixed", "key that a plan chooses")
    for key, value in settings.items():
        if key == "remat":
            names = [str(policy) for policy in policies(run)]
            check_keys([str(value)], names, "--fixed remat", "policy")
            wanted: object = str(value)
        else:
            wanted = int(value) if isinstance(value, str) and is_count(value) else value
            wanted = whole_number(f"--fixed {key}", wanted, int("zero" not in key))
        if key == PARTIAL:  # raises where the stages of its software are alike
            pipeline = replace(run.pipeline, remat_layers=whole_number(key, wanted))
            check_recomputed(replace(run, pipeline=pipeline), traits_of(run.software))
        yield Constraint(f"--fixed {key}={value}", key, partial(eq, wanted))


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


def contradiction(
    constraints: Sequence[Constraint], values: Callable[[Sequence[Constraint], str], set[Any]]
) -> str:
    """The fewest constraints that leave no configuration together, in words.

    Args:
        constraints: that leave none, all together.
        values: of a setting, by its key, in the space that constraints leave; none: it is empty.
    """
    sets = (s for size in range(len(constraints)) for s in combinations(constraints, size + 1))
    least = next(some for some in sets if not values(some, some[0].key))
    texts = " and ".join(constraint.text for constraint in least)
    if len(least) > 1:
        return f"{texts} contradict each other: no configuration is as they say; leave one out"
    found = sorted(values((), least[0].key))
    listed = ", ".join(map(str, found[:SHOWN]))
    return f"{texts}: no configuration is so; there are {listed}" + ", ..." * (len(found) > SHOWN)
