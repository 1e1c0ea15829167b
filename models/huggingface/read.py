"""A Hugging Face `config.json` as a ModelConfig, or an error that names what does not fit.

Every key of the file is either translated, or has a value that a ModelConfig implies, or concerns
storage and training only; anything else is refused, so that no setting is dropped silently.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import convert, read, read_json
from scaling.models.config import ModelConfig, RopeScaling, Yarn
from scaling.models.huggingface.families import ANY_FAMILY, FOUR_TIMES, HARMLESS, Family, families

Json = Mapping[str, Any]


def _keys(cls: type[RopeScaling] | type[Yarn]) -> dict[str, str]:
    """The key of each field: its own name, but for one."""
    longer = {"original_max_positions": "original_max_position_embeddings"}
    return {field.name: longer.get(field.name, field.name) for field in fields(cls)}


LLAMA3_SCALING, YARN_SCALING = _keys(RopeScaling), _keys(Yarn)
STRETCHES = {"llama3": ("rope_scaling", LLAMA3_SCALING), "yarn": ("yarn", YARN_SCALING)}
ROPE_VALUES = {  # rope_type -> keys that may stand beside it
    "default": {"rope_theta"},
    "llama3": {"rope_theta", *LLAMA3_SCALING.values()},
    "yarn": {"rope_theta", *YARN_SCALING.values()},
}


def read_config(path: str | Path) -> ModelConfig:
    """The model of a Hugging Face config.json; `path` is the file, or the folder that holds it.

    Raises:
        InputError: no such file, not JSON, an unknown model_type, a missing key, or settings
            that a ModelConfig cannot express (all of them are named).
    """
    file = Path(path, "config.json") if os.path.isdir(path) else Path(path)
    data = read_json(file)
    if not isinstance(data, dict):
        raise InputError(f"{file}: expected a JSON object with a model_type")
    return translate(data, str(file))


def translate(data: Json, where: str) -> ModelConfig:
    """The ModelConfig that the parsed config.json `data` describes (errors as `read_config`)."""
    name = str(data.get("model_type"))
    if name not in families():
        refusal = f"{where}: model_type {name!r} cannot be read; {nearest(name, families())}"
        raise InputError(f"{refusal}\n{_by_hand(data)}")
    family = families()[name]
    # A key in its first spelling; a second spelling beside the first is refused as unknown.
    first = {key: family.aliases.get(key, key) for key in data}
    data = {key if first[key] in data else first[key]: value for key, value in data.items()}
    settings = {key: value for key, value in data.items() if value is not None}
    unknown = {k: v for k, v in settings.items() if not _is_expressible(family, k, v)}
    _refuse(unknown, where)
    _check_present(family, data, where)
    values = dict(family.constants) | _shapes(family, settings, where) | _rope(family, settings)
    values |= _biases(family, settings, where)
    if family.moe:
        experts = {field: settings[key] for field, key in family.moe.items() if key in settings}
        values["moe"] = {**family.moe_constants, **family.moe_defaults, **experts}
    if family.mla:
        values["mla"] = {key: data[key] for key in family.mla}
    config = read(ModelConfig, values, where)
    return replace(config, sliding_window=_window(family, data, config.n_layers, where))


def _by_hand(data: Json) -> str:
    """What to write instead, with the shapes that most model_types call alike."""
    sizes = {name: data.get(key) for name, key in families()["llama"].shapes.items()}
    found = {name: size for name, size in sizes.items() if type(size) is int}
    model = {"mlp": "swiglu", "norm": "rmsnorm", "positions": "rope", **found}
    run = {"name": "mine", "model": model, "batch": {"global_batch": 512, "seq_len": 4096}}
    return (
        "if it is a decoder of such layers, write it as a run.json, with its mlp (swiglu, gelu, "
        f"relu), norm (rmsnorm, layernorm) and positions (rope, learned, alibi): {json.dumps(run)}"
    )


def _is_expressible(family: Family, key: str, value: Any) -> bool:
    only = {**ANY_FAMILY, **family.only}
    if key in only:
        return value in only[key]
    if key in ("rope_scaling", "rope_parameters") and key in family.keys:
        if not isinstance(value, Mapping):
            return False
        keys = {key for key, item in value.items() if item is not None} - {"rope_type", "type"}
        kind = _rope_type(value)  # any JSON value
        return isinstance(kind, str) and kind in ROPE_VALUES and keys <= ROPE_VALUES[kind]
    return key in HARMLESS or key in family.keys


def _rope_type(rope: Json) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))  # "type" until release 4.42


def _refuse(settings: Json, where: str) -> None:
    if settings:
        listed = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        raise InputError(
            f"{where}: a model here cannot express {listed}. To work with the nearest model that "
            "it can express, change or remove these keys in a copy of the file"
        )


def _check_present(family: Family, data: Json, where: str) -> None:
    """Raise InputError for missing keys; shapes without a default may not be null either."""
    required = [key for field, key in family.shapes.items() if field not in family.defaults]
    missing = [key for key in required if data.get(key) is None]
    required = [key for field, key in family.moe.items() if field not in family.moe_defaults]
    missing += [key for key in (*required, *family.mla) if key not in data]
    if missing:
        raise InputError(f"{where}: missing {', '.join(map(repr, missing))}")


def _shapes(family: Family, settings: Json, where: str) -> dict[str, Any]:
    shapes = {f: settings.get(key, family.defaults.get(f)) for f, key in family.shapes.items()}
    if shapes["d_ff"] in (None, FOUR_TIMES):
        shapes["d_ff"] = 4 * convert(int, shapes["d_model"], f"{where}: d_model")
    return shapes


def _rope(family: Family, settings: Json) -> dict[str, Any]:
    if not family.rope_theta:
        return {}
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    theta = rope.get("rope_theta", settings.get("rope_theta", family.rope_theta))
    if _rope_type(rope) not in STRETCHES:
        return {"rope_theta": theta}
    name, keys = STRETCHES[_rope_type(rope)]
    scaling = {field: rope[key] for field, key in keys.items() if rope.get(key) is not None}
    if name == "yarn" and "max_position_embeddings" in settings:
        scaling.setdefault("original_max_positions", settings["max_position_embeddings"])
    return {"rope_theta": theta, name: scaling}


def _biases(family: Family, settings: Json, where: str) -> dict[str, bool]:
    biases = {
        key: convert(bool, settings.get(key, False), f"{where}: {key}") for key in family.bias_keys
    }
    if len(set(biases.values())) > 1:  # biases on some projections only
        _refuse(biases, where)
    return {"bias": next(iter(biases.values()))} if biases else {}


def _window(family: Family, data: Json, n_layers: int, where: str) -> int | None:
    """The window that all layers share, None for full attention in all layers."""
    if family.window == "none" or (
        family.window == "switched" and not data.get("use_sliding_window")
    ):
        return None
    kinds = _layer_kinds(family, data, n_layers, where)
    if kinds not in ({"full_attention"}, {"sliding_attention"}):
        keys = ("use_sliding_window", "sliding_window", "max_window_layers", "layer_types")
        _refuse({key: data[key] for key in keys if data.get(key) is not None}, where)
    window = data.get("sliding_window", family.default_window)
    checked = convert(int | None, window, f"{where}: sliding_window")
    return checked if kinds == {"sliding_attention"} else None


def _layer_kinds(family: Family, data: Json, n_layers: int, where: str) -> set[str]:
    if data.get("layer_types"):
        return set(convert(tuple[str, ...], data["layer_types"], f"{where}: layer_types"))
    if family.window == "always":
        return {"sliding_attention"}
    first = data.get("max_window_layers", family.default_window_layer)
    first = convert(int, first, f"{where}: max_window_layers")  # the first layer with a window
    kinds = {"sliding_attention"} if first < n_layers else set()
    return kinds | ({"full_attention"} if first > 0 else set())
