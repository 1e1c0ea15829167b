"""Windows, chunks and rotations of each layer, read from a Hugging Face config.json."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.reading import convert, read
from scaling.models.config import LayerKind, ModelConfig, layer_configs
from scaling.models.huggingface.families import LOCAL_THETA, WINDOW_KEYS, Family

Json = Mapping[str, Any]

FULL, SLIDING = "full_attention", "sliding_attention"  # of layer_types, and of rope_parameters
CHUNKED = "chunked_attention"
LIMITS = {  # by `Family.window`: the layers that see less than all, the key of it, and the field
    "always": (SLIDING, "sliding_window", "sliding_window"),
    "chunks": (CHUNKED, "attention_chunk_size", "attention_chunk"),
}


def with_layers(family: Family, data: Json, config: ModelConfig, where: str) -> ModelConfig:
    """The model with what all its layers have, or the pattern of those that differ in turn."""
    switched_off = family.window == "switched" and not data.get("use_sliding_window")
    if family.window == "none" or switched_off:
        return config
    limited, key, field = LIMITS.get(family.window, LIMITS["always"])
    rotated = _rotated_layers(family, data, config.n_layers, where)
    kinds = _layer_kinds(family, data, rotated, where)
    if unknown := sorted(set(kinds) - {FULL, limited}):
        refuse({"layer_types": unknown}, where)
    own: dict[str, Any] = {field: data.get(key, family.default_window)}
    if family.rotates_windows and own[field]:
        rotated = [kind == limited for kind in kinds]
    if family.local_rope_theta:
        theta = data.get(LOCAL_THETA) or family.local_rope_theta
        own["rope_theta"] = rope_of(data, SLIDING).get("rope_theta", theta)
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
    """True for each layer that has rotary positions."""
    if "no_rope_layers" not in WINDOW_KEYS[family.window]:
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
    if family.window == "unrotated" and not data.get("use_sliding_window"):
        return (FULL,) * n_layers
    if data.get("layer_types"):
        kinds = convert(tuple[str, ...], data["layer_types"], f"{where}: layer_types")
        if len(kinds) != n_layers:
            raise InputError(f"{where}: {len(kinds)} layer_types of {n_layers} layers")
        return kinds
    if family.window == "chunks":
        return tuple(CHUNKED if is_rotated else FULL for is_rotated in rotated)
    if family.window == "unrotated":
        return tuple(FULL if is_rotated else SLIDING for is_rotated in rotated)
    if family.window == "always":
        return (SLIDING,) * n_layers
    if family.window == "pattern":
        every = data.get("sliding_window_pattern") or family.default_pattern
        every = convert(int, every, f"{where}: sliding_window_pattern")
        return tuple(SLIDING if i % every else FULL for i in range(1, n_layers + 1))
    first = data.get("max_window_layers", family.default_window_layer)
    first = convert(int, first, f"{where}: max_window_layers")  # the first layer with a window
    return tuple(SLIDING if i >= first else FULL for i in range(n_layers))


def rope_of(settings: Json, kind: str) -> Json:
    """The rotary settings of layers of a kind: those of all, or of its own."""
    rope: Json = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    return rope.get(kind) or {} if rope.keys() & {FULL, SLIDING} else rope


def refuse(settings: Json, where: str, otherwise: str = "") -> None:
    if settings:
        listed = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        raise InputError(
            f"{where}: a model here cannot express {listed}. To work with the nearest model that "
            f"it can express, change or remove these keys in a copy of the file{otherwise}"
        )
