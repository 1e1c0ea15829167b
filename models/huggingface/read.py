"""A Hugging Face `config.json` as a ModelConfig, or an error that names what does not fit.

Every key of the file is either translated, or has a value that a ModelConfig implies, or concerns
storage and training only; anything else is refused, so that no setting is dropped silently.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import convert, read, read_json, say_once
from scaling.models.config import ModelConfig
from scaling.models.huggingface.families import (
    ANY_FAMILY,
    FOUR_TIMES,
    HARMLESS,
    MULTIPLIER,
    Family,
    families,
)
from scaling.models.huggingface.layers import FULL, SLIDING, Json, refuse, rope_of, with_layers
from scaling.models.rope import LongRope, RopeScaling, Yarn


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
SAME = 1e-6  # of a factor of scores: less than float32 tells apart
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
    return _as_family(data, name, where, _by_hand)


def _as_family(
    data: Json, name: str, where: str, otherwise: Callable[[Json], str] = lambda _: ""
) -> ModelConfig:
    """The model of the text part `data` of a file, read as of model_type `name`; a refusal ends
    with what `otherwise` says."""
    family = families()[name]
    # A key in its first spelling; a second spelling beside the first is refused as unknown.
    first = {key: family.aliases.get(key, key) for key in data}
    data = {key if first[key] in data else first[key]: value for key, value in data.items()}
    data = {**family.absent, **data}
    settings = {key: value for key, value in data.items() if value is not None}
    unknown = {k: v for k, v in settings.items() if not _is_expressible(family, k, v)}
    if unknown:
        refuse(unknown, where, f". {otherwise(data)}")
    _check_present(family, data, where)
    values = dict(family.constants) | _shapes(family, settings, where) | _rope(family, settings)
    values |= _biases(family, settings, where)
    if family.moe:
        experts = {field: settings[key] for field, key in family.moe.items() if key in settings}
        if settings.get("topk_method") == "greedy":  # of all experts
            experts |= {"n_groups": 1, "groups_per_token": 1}
        values["moe"] = {**family.moe_defaults, **experts, **family.moe_constants}
    if family.mla:
        values["mla"] = {key: data[key] for key in family.mla}
    config = read(ModelConfig, values, where)
    listed = convert(tuple[int, ...], data.get("moe_layers") or (), f"{where}: moe_layers")
    if config.moe and listed:  # it overrides that each last one of so many has experts
        every = max(listed[0], 0) + 1
        if listed != tuple(range(config.n_layers))[every - 1 :: every]:
            refuse({"moe_layers": listed}, where)
        config = replace(config, moe=replace(config.moe, every=every))
    return with_layers(family, data, config, where)


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
            config = _as_family(rest, name, "")
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
        shapes["rotated"] = rope_of(settings, FULL).get(ROPE_SHARE, shapes["rotated"])
    if family.shapes.get("score_dim") == MULTIPLIER:
        factor = convert(float, shapes["score_dim"], f"{where}: {MULTIPLIER}")
        shapes["score_dim"] = round(factor**-2) if factor > SAME else 0
        if abs(factor * shapes["score_dim"] ** 0.5 - 1) > SAME:
            refuse({MULTIPLIER: factor}, where)
    if not settings.get("attn_temperature_tuning", True):
        shapes["temperature"] = 0.0
    return shapes


def _rope(family: Family, settings: Json) -> dict[str, Any]:
    if not family.rope_theta:
        return {}
    rope = rope_of(settings, FULL)
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
        refuse(biases, where)
    return {"bias": next(iter(biases.values()))} if biases else {}
