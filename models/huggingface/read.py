"""A Hugging Face `config.json` as a ModelConfig, or an error that names what does not fit.

Every key of the file is either translated, or has a value that a ModelConfig implies, or concerns
storage and training only; anything else is refused, so that no setting is dropped silently.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import convert, read, read_json, say_once
from scaling.models.config import LayerKind, ModelConfig, layer_configs
from scaling.models.huggingface.families import (
    ANY_FAMILY,
    FOUR_TIMES,
    HARMLESS,
    LOCAL_THETA,
    Family,
    families,
)
from scaling.models.rope import LongRope, RopeScaling, Yarn

Json = Mapping[str, Any]


def _keys(cls: type[RopeScaling] | type[Yarn] | type[LongRope]) -> dict[str, str]:
    """The key of each field: its own name, but for one."""
    longer = {"original_max_positions": "original_max_position_embeddings"}
    return {field.name: longer.get(field.name, field.name) for field in fields(cls)}


STRETCHES = {  # rope_type -> the field of ModelConfig, and the keys of its own fields
    "llama3": ("rope_scaling", _keys(RopeScaling)),
    "yarn": ("yarn", _keys(Yarn)),
    "longrope": ("longrope", _keys(LongRope)),
}
ROPE_SHARE = "partial_rotary_factor"
ROPE_VALUES = {  # rope_type -> keys that may stand beside it
    "default": {"rope_theta", ROPE_SHARE},
    "linear": {"rope_theta", ROPE_SHARE, "factor"},
    **{kind: {"rope_theta", ROPE_SHARE, *keys.values()} for kind, (_, keys) in STRETCHES.items()},
}
TEXT_MODELS = {"mistral3": "mistral"}  # of a model_type with more parts; else its name and _text
TEXT_KEYS = "text_config", "quantization_config"
FULL, SLIDING = "full_attention", "sliding_attention"  # of layer_types, and of rope_parameters
CHUNKED = "chunked_attention"
LIMITS = {  # by `Family.window`: the layers that see less than all, the key of it, and the field
    "always": (SLIDING, "sliding_window", "sliding_window"),
    "chunks": (CHUNKED, "attention_chunk_size", "attention_chunk"),
}
ORIGINAL = "original_max_position_embeddings"


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
    data, left_out = _text_part(data)
    if left_out:
        say_once(f"{where}: its text model is read; {', '.join(left_out)} is left out")
    name = str(data.get("model_type"))
    if name not in families():
        refusal = f"{where}: model_type {name!r} cannot be read; {nearest(name, families())}"
        raise InputError(f"{refusal}\n{_by_hand(data)}")
    family = families()[name]
    # A key in its first spelling; a second spelling beside the first is refused as unknown.
    first = {key: family.aliases.get(key, key) for key in data}
    data = {key if first[key] in data else first[key]: value for key, value in data.items()}
    data = {**family.absent, **data}
    settings = {key: value for key, value in data.items() if value is not None}
    unknown = {k: v for k, v in settings.items() if not _is_expressible(family, k, v)}
    if unknown:
        _refuse(unknown, where, f". {_by_hand(data)}")
    _check_present(family, data, where)
    values = dict(family.constants) | _shapes(family, settings, where) | _rope(family, settings)
    values |= _biases(family, settings, where)
    if family.moe:
        experts = {field: settings[key] for field, key in family.moe.items() if key in settings}
        if settings.get("topk_method") == "greedy":  # of all experts
            experts |= {"n_groups": 1, "groups_per_token": 1}
        if listed := data.get("moe_layers"):  # else each last one of so many
            experts["every"] = every = listed[0] + 1
            if listed != list(range(every - 1, values["n_layers"], every)):
                _refuse({"moe_layers": listed}, where)
        values["moe"] = {**family.moe_defaults, **experts, **family.moe_constants}
    if family.mla:
        values["mla"] = {key: data[key] for key in family.mla}
    config = read(ModelConfig, values, where)
    return _with_layers(family, data, config, where)


def _text_part(data: Json) -> tuple[Json, list[str]]:
    """The text model of a file that describes more, and the keys of its other parts."""
    text = data.get("text_config")
    if not isinstance(text, Mapping):
        return data, []
    whole = str(data.get("model_type"))
    name = text.get("model_type", TEXT_MODELS.get(whole, f"{whole}_text"))
    tied = {key: data[key] for key in ("tie_word_embeddings",) if key in data}
    parts = [key for key in data if key.endswith("_config") and key not in TEXT_KEYS]
    return {**tied, **text, "model_type": name}, parts


def _by_hand(data: Json) -> str:
    """The run.json to write instead: the nearest model of a family that is read, and what of the
    file it leaves out."""
    found: list[tuple[int, str, list[str], dict[str, Any]]] = []  # with how far it is away
    for name, family in families().items():
        left = [k for k, v in data.items() if v is not None and not _is_expressible(family, k, v)]
        rest = {key: value for key, value in data.items() if key not in left}
        with suppress(InputError):
            config = translate({**rest, "model_type": name}, "")
            defaults = {field.name: field.default for field in fields(config)}
            model = {k: v for k, v in asdict(config).items() if v != defaults[k]}
            assumed = {*family.constants, *family.moe_constants}  # what the file does not say
            found.append((len(left) + 2 * len(assumed), name, left, model))
    if not found:
        sizes = {name: data.get(key) for name, key in families()["llama"].shapes.items()}
        found = [(0, "llama", [], {name: n for name, n in sizes.items() if type(n) is int})]
    _, name, left, model = min(found, key=lambda each: each[0])
    run = {"name": "mine", "model": model, "batch": {"global_batch": 512, "seq_len": 4096}}
    without = f" without {', '.join(left)}" * bool(left)
    return (
        f"Read as {name}{without} it is this run.json, to be changed where the model differs "
        f"(docs/reference.md has the keys): {json.dumps(run)}"
    )


def _is_expressible(family: Family, key: str, value: Any) -> bool:
    only = {**ANY_FAMILY, **family.only}
    if key in only and key not in family.shapes.values():
        return value in only[key]
    if key in ("rope_scaling", "rope_parameters") and key in family.keys:
        if not isinstance(value, Mapping):
            return False
        if family.local_rope_theta and value.keys() & {FULL, SLIDING}:
            of_kinds = [value.get(kind) or {} for kind in (FULL, SLIDING)]
            is_plain = isinstance(of_kinds[1], Mapping) and _rope_type(of_kinds[1]) == "default"
            known = value.keys() <= {FULL, SLIDING} and is_plain
            return known and all(_is_expressible(family, key, each) for each in of_kinds)
        keys = {key for key, item in value.items() if item is not None} - {"rope_type", "type"}
        kind = _rope_type(value)  # any JSON value
        has_share = value.get(ROPE_SHARE, 1.0) == 1 or "rotated" in family.shapes
        known = isinstance(kind, str) and kind in ROPE_VALUES and keys <= ROPE_VALUES[kind]
        return known and has_share
    return key in HARMLESS or key in family.keys


def _rope_type(rope: Json) -> Any:
    kind = rope.get("rope_type", rope.get("type", "default"))  # "type" until release 4.42
    return "longrope" if kind == "su" else kind  # as Phi-3's first files call it


def _refuse(settings: Json, where: str, otherwise: str = "") -> None:
    if settings:
        listed = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        raise InputError(
            f"{where}: a model here cannot express {listed}. To work with the nearest model that "
            f"it can express, change or remove these keys in a copy of the file{otherwise}"
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
    if "rotated" in shapes:
        shapes["rotated"] = _rope_of(settings, FULL).get(ROPE_SHARE, shapes["rotated"])
    if not settings.get("attn_temperature_tuning", True):
        shapes["temperature"] = 0.0
    return shapes


def _rope_of(settings: Json, kind: str) -> Json:
    """The rotary settings of layers of a kind: those of all, or of its own."""
    rope: Json = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    return rope.get(kind) or {} if rope.keys() & {FULL, SLIDING} else rope


def _rope(family: Family, settings: Json) -> dict[str, Any]:
    if not family.rope_theta:
        return {}
    rope = _rope_of(settings, FULL)
    theta = {"rope_theta": rope.get("rope_theta", settings.get("rope_theta", family.rope_theta))}
    kind = _rope_type(rope)
    if kind == "linear":
        return theta | {"rope_factor": rope.get("factor")}
    if kind not in STRETCHES:
        return theta
    name, keys = STRETCHES[kind]
    scaling = {field: rope[key] for field, key in keys.items() if rope.get(key) is not None}
    longest = settings.get("max_position_embeddings")
    original = settings.get(ORIGINAL) or (name != "rope_scaling" and longest)
    if original:
        scaling.setdefault("original_max_positions", original)
    if name == "longrope" and longest and scaling.get("original_max_positions"):
        scaling.setdefault("factor", max(1.0, longest / scaling["original_max_positions"]))
    return theta | {name: scaling}


def _biases(family: Family, settings: Json, where: str) -> dict[str, bool]:
    biases = {
        key: convert(bool, settings.get(key, False), f"{where}: {key}") for key in family.bias_keys
    }
    if len(set(biases.values())) > 1:  # biases on some projections only
        _refuse(biases, where)
    return {"bias": next(iter(biases.values()))} if biases else {}


def _with_layers(family: Family, data: Json, config: ModelConfig, where: str) -> ModelConfig:
    """The model with what all its layers have, or the pattern of those that differ in turn."""
    switched_off = family.window == "switched" and not data.get("use_sliding_window")
    if family.window == "none" or switched_off:
        return config
    limited, key, field = LIMITS.get(family.window, LIMITS["always"])
    rotated = _rotated_layers(family, data, config.n_layers, where)
    kinds = _layer_kinds(family, data, rotated, where)
    if unknown := sorted(set(kinds) - {FULL, limited}):
        _refuse({"layer_types": unknown}, where)
    own: dict[str, Any] = {field: data.get(key, family.default_window)}
    if family.local_rope_theta:
        theta = data.get(LOCAL_THETA) or family.local_rope_theta
        own["rope_theta"] = _rope_of(data, SLIDING).get("rope_theta", theta)
        stretches = config.rope_scaling, config.yarn, config.longrope, config.rope_factor != 1
        own["is_stretched"] = not any(stretches)
    near = read(LayerKind, own, where)
    if near.rope_theta == config.rope_theta:
        near = replace(near, rope_theta=0.0)
    layers = [
        replace(near if kind == limited else LayerKind(), is_rotated=is_rotated)
        for kind, is_rotated in zip(kinds, rotated, strict=True)
    ]
    lengths = range(1, len(layers) + 1)
    period = next(n for n in lengths if layers == [layers[i % n] for i in range(len(layers))])
    pattern = replace(config, layers=tuple(layers[:period]))
    return pattern if period > 1 else layer_configs(pattern)[0]


def _rotated_layers(family: Family, data: Json, n_layers: int, where: str) -> list[bool]:
    """Whether each layer has rotary positions."""
    if family.window != "chunks":
        return [True] * n_layers
    every = data.get("no_rope_layer_interval") or family.default_pattern
    every = convert(int, every, f"{where}: no_rope_layer_interval")
    listed = data.get("no_rope_layers") or [i % every for i in range(1, n_layers + 1)]
    listed = convert(tuple[int, ...], listed, f"{where}: no_rope_layers")
    if len(listed) < n_layers:
        raise InputError(f"{where}: {len(listed)} no_rope_layers of {n_layers} layers")
    return [number != 0 for number in listed[:n_layers]]


def _layer_kinds(family: Family, data: Json, rotated: list[bool], where: str) -> tuple[str, ...]:
    """The kind of each layer, as `layer_types` names it."""
    n_layers = len(rotated)
    if data.get("layer_types"):
        kinds = convert(tuple[str, ...], data["layer_types"], f"{where}: layer_types")
        if len(kinds) != n_layers:
            raise InputError(f"{where}: {len(kinds)} layer_types of {n_layers} layers")
        return kinds
    if family.window == "chunks":
        return tuple(CHUNKED if is_rotated else FULL for is_rotated in rotated)
    if family.window == "always":
        return (SLIDING,) * n_layers
    if family.window == "pattern":
        every = data.get("sliding_window_pattern") or family.default_pattern
        every = convert(int, every, f"{where}: sliding_window_pattern")
        return tuple(SLIDING if i % every else FULL for i in range(1, n_layers + 1))
    first = data.get("max_window_layers", family.default_window_layer)
    first = convert(int, first, f"{where}: max_window_layers")  # the first layer with a window
    return tuple(SLIDING if i >= first else FULL for i in range(n_layers))
