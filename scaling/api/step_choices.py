"""What `plan_step` compiles, as people say it: meshes within limits, and variants of a step."""

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from scaling.api.inputs import as_texts
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.rules import divisors
from scaling.meshes.shape import axes_text, parse_sizes

Axes = Mapping[str, int]
TRUTH = {"true": "True", "false": "False"}


def several(given: str | Iterable[Any] | None) -> list[Any]:
    """Return meshes or variants one by one: a text has them between semicolons."""
    texts = given.split(";") if isinstance(given, str) else (given or ())
    return [text.strip() if isinstance(text, str) else text for text in texts]


def all_meshes(axes: Sequence[str], limits: str | Axes, place: Cluster) -> list[Axes]:
    """Return every mesh of all devices over the axes, within the limits.

    Raises:
        InputError: no axes, one named twice, a limit of an axis that there is not, no such mesh.
    """
    if not axes:
        raise InputError("over which axes? add --axes data,model, as the function calls them")
    if isinstance(limits, str):
        limits = parse_sizes(limits, "--max", "axis", "model=8")
    if twice := next((axis for axis in axes if axes.count(axis) > 1), ""):
        raise InputError(f"--axes names {twice!r} twice; name each axis once")
    check_keys(limits, axes, "--max", "axis")
    sizes = [
        [n for n in divisors(place.devices) if n <= whole_number("--max", limits.get(axis, n))]
        for axis in axes
    ]
    found: list[Axes] = [
        dict(zip(axes, each, strict=True))
        for each in product(*sizes)
        if math.prod(each) == place.devices
    ]
    if not found:
        raise InputError(
            f"no mesh over {','.join(axes)} has the {place.devices} devices of {place.nodes} x "
            f"{place.name} within --max {axes_text(limits)}: raise it, or name an axis without"
        )
    return found


def settings_of(variants: Any) -> dict[str, dict[str, Any]]:
    """Return name of a variant -> keywords of `predict_made`."""
    if variants is None:
        return {"": {}}
    if not isinstance(variants, Mapping):
        variants = dict(map(_variant, several(variants)))
    found = {}
    for name, values in variants.items():
        if not isinstance(values, Mapping):
            raise InputError(f"--variants: {name}={values!r} must be a mapping of settings")
        setting, options = dict(values), dict(values.get("options") or {})
        setting.pop("options", None)
        options |= {k: setting.pop(k) for k in list(setting) if k.startswith("xla_")}
        found[str(name)] = {"setting": setting, "options": options}
    return found


def _variant(given: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the settings of `remat=full,layers=4`; values are Python's, or texts."""
    if isinstance(given, Mapping):
        return axes_text(given), given
    values: dict[str, Any] = {}
    for pair in as_texts(given, "--variants", "remat=full")[0].split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not key or not equals:
            raise InputError(f"--variants {given!r}: write NAME=VALUE,..., such as remat=full")
        values[key] = value
        with suppress(SyntaxError, ValueError):  # else it is a text
            values[key] = ast.literal_eval(TRUTH.get(value, value))
    return given, values


def imbalance(mesh: Axes) -> float:
    """0 where all axes are equally long: there all collectives of a step are met."""
    logs = [math.log(n) for n in mesh.values()]
    return sum((x - sum(logs) / len(logs)) ** 2 for x in logs)
