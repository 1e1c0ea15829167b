"""Named models, and the forms in which a run names its model.

preset("llama3-8b") is a ModelConfig; {"preset": "llama3-8b", "n_layers": 4} in run.json replaces
one field of it, "path/to/config.json" is a Hugging Face model. Shapes: models/published.toml.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from scaling.meshes.errors import InputError, nearest, reworded
from scaling.meshes.reading import merged, package_toml, read
from scaling.models.config import ModelConfig, Moe
from scaling.models.huggingface.read import read_config

# Our own toys over bytes: seconds per run for tests (dense, and with experts), and 0.9 M parameters
# to watch learning.
_TINY = ModelConfig(256, d_model=64, n_layers=2, n_heads=4, d_ff=128, n_kv_heads=2)
_TOYS = {
    "tiny": _TINY,
    "tiny-moe": replace(_TINY, moe=Moe(8, 2, d_ff_expert=64, aux_loss=0.01, z_loss=0.001)),
    "demo": ModelConfig(256, d_model=128, n_layers=4, n_heads=4, d_ff=384),
}


@cache
def _published() -> dict[str, dict[str, Any]]:
    """Fields of the models of published.toml, whose head says how its tables are read."""
    families, models = package_toml("models/published.toml"), {}
    for family in families.values():
        parent = families.get(family.get("like"), {})
        fields = {**parent, **family}["fields"]
        common = merged(parent.get("common", {}), family["common"])
        for name, row in family["models"].items():
            sizes = dict(zip(fields, row, strict=False))
            models[name] = {**merged(common, *row[len(fields) :]), **sizes}
    return models


@cache
def preset(name: str) -> ModelConfig:
    """The model of that name.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    if name in _TOYS:
        return _TOYS[name]
    if name not in _published():
        raise InputError(f"unknown model {name!r}; {nearest(name, preset_names())}")
    return read(ModelConfig, _published()[name], f"published.toml: {name}")


def preset_names() -> tuple[str, ...]:
    """All names of presets, by family, small to large."""
    return (*_TOYS, *_published())


def model_from(data: Mapping[str, Any] | str, where: str = "model") -> ModelConfig:
    """The model that a run names.

    Args:
        data: a preset's name; the path of a Hugging Face config.json or of its folder;
            {"preset": name} or {"config": path} with further keys that replace single fields
            (inside "moe" and "mla" too); or every field.
        where: name of the source in messages ("run.json: model").

    Raises:
        InputError: unknown name or key, missing file, or shapes that do not fit together.
    """
    if isinstance(data, str):
        is_path = "/" in data or data.endswith(".json") or os.path.exists(data)
        return _load("config" if is_path and data not in preset_names() else "preset", data, where)
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected a name, a path or a table of keys, got {data!r}")
    if "preset" in data and "config" in data:
        raise InputError(f"{where}: give either 'preset' or 'config', not both")
    for key in _SOURCES:
        if key in data:
            if not isinstance(data[key], str):
                raise InputError(f"{where}: {key}: expected a string, got {data[key]!r}")
            changes = {k: v for k, v in data.items() if k != key}
            base = _load(key, data[key], where)
            fields = asdict(base)
            # fields that depend on changed ones are derived again
            is_split = base.head_dim * base.n_heads == base.d_model
            if is_split and {"d_model", "n_heads"} & set(changes):
                fields["head_dim"] = 0
            if base.n_kv_heads == base.n_heads and "n_heads" in changes:
                fields["n_kv_heads"] = 0
            return read(ModelConfig, merged(fields, changes), where)
    return read(ModelConfig, data, where)


_SOURCES: dict[str, Callable[[str], ModelConfig]] = {"preset": preset, "config": read_config}


def _load(source: str, name: str, where: str) -> ModelConfig:
    with reworded(f"{where}: "):
        return _SOURCES[source](name)
