"""A ModelConfig as a Hugging Face config.json: the inverse of `models.huggingface.read.translate`.

The first family whose file, read back, gives the same model is taken; a model that none expresses
is refused with the fields that differ.
"""

from dataclasses import asdict, replace
from typing import Any

from scaling.meshes.errors import InputError
from scaling.models.config import ModelConfig, layer_configs
from scaling.models.huggingface.families import (
    LOCAL_THETA,
    MULTIPLIER,
    WINDOW_KEYS,
    Family,
    families,
)
from scaling.models.huggingface.layers import FULL, LIMITS, SLIDING
from scaling.models.huggingface.read import ORIGINAL, STRETCHES, translate

ACTIVATIONS = {
    "swiglu": "silu",
    "clamped_swiglu": "silu",
    "geglu": "gelu_pytorch_tanh",
    "gelu": "gelu_new",
    "relu": "relu",
}
# Fields of Moe that files do not have.
TRAINING: dict[str, Any] = {
    "capacity_factor": None,
    "device_capacity_factor": None,
    "skew": 1.0,
    "z_loss": 0.0,
    "aux_loss": 0.0,
}


def family_of(config: ModelConfig) -> str:
    """The model_type that expresses `config` (errors as `to_huggingface`)."""
    return to_huggingface(config, 1)["model_type"]


def to_huggingface(config: ModelConfig, seq_len: int, dtype: str = "float32") -> dict[str, Any]:
    """The config.json of a model; `dtype` is that of the weights, as PyTorch names it.

    Without a table of positions the longest sequence is `seq_len`.

    Raises:
        InputError: no family that is read here expresses it; the message has the fields.
    """
    closest: list[str] = []
    for name, family in families().items():
        data = _written(config, name, family, seq_len, dtype)
        try:
            ours, theirs = (asdict(_function(m)) for m in (config, translate(data, name)))
        except InputError:
            continue
        different = [f"{f}={value!r}" for f, value in ours.items() if value != theirs[f]]
        if not different:
            return data
        closest = min(closest or different, different, key=len)
    raise InputError(
        "this model has no Hugging Face family among "
        f"{', '.join(families())}; the nearest differs in {', '.join(closest)}"
    )


def _written(
    config: ModelConfig, name: str, family: Family, seq_len: int, dtype: str
) -> dict[str, Any]:
    data: dict[str, Any] = {"architectures": [family.architecture], "model_type": name}
    data |= {"dtype": dtype, "torch_dtype": dtype, "pad_token_id": None}
    shapes = {key: getattr(config, field) for field, key in family.shapes.items()}
    shapes = {key: value if value is False else value or None for key, value in shapes.items()}
    data |= shapes
    if MULTIPLIER in data:
        data[MULTIPLIER] = (config.score_dim or config.head_dim) ** -0.5
    data["tie_word_embeddings"] = config.tied_embeddings
    data |= {key: config.bias for key in family.bias_keys}
    data |= {key: values[0] for key, values in family.only.items() if key not in shapes}
    activation, keys = ACTIVATIONS[config.mlp], ("hidden_act", "activation_function")
    data |= {key: activation for key in keys if activation in family.only.get(key, ())}
    if family.rope_theta:
        # with YaRN releases of transformers before 5 derive its factor from the longest sequence
        by_factor = config.yarn or config.longrope
        longest = seq_len
        if by_factor is not None:
            longest = round(by_factor.factor * by_factor.original_max_positions)
        data |= _rope(config, family) | {"max_position_embeddings": longest}
    if family.window != "none":
        limited, key, field = LIMITS.get(family.window, LIMITS["always"])
        layers = [
            layer_configs(config)[i % max(len(config.layers), 1)] for i in range(config.n_layers)
        ]
        limits = [getattr(layer, field) for layer in layers]
        data[key] = next((limit for limit in limits if limit), None)
        if family.window in ("pattern", "chunks", "unrotated") or config.layers:
            data["layer_types"] = [limited if limit else FULL for limit in limits]
        if "no_rope_layers" in WINDOW_KEYS[family.window]:
            data["no_rope_layers"] = [int(layer.positions == "rope") for layer in layers]
    if family.window == "chunks":
        data |= {
            "attn_temperature_tuning": config.temperature > 0,
            "attn_scale": config.temperature,
        }
    if "use_sliding_window" in WINDOW_KEYS[family.window]:
        data["use_sliding_window"] = data["sliding_window"] is not None
    if family.window == "switched":
        data["max_window_layers"] = 0 if data["sliding_window"] else config.n_layers
    if family.mla and config.mla:
        data |= asdict(config.mla) | {"rope_interleave": True}
        data["qk_head_dim"] = config.mla.qk_nope_head_dim + config.mla.qk_rope_head_dim
        data["head_dim"] = config.mla.qk_rope_head_dim
    if family.moe and config.moe:
        moe = asdict(config.moe) | {"d_ff_expert": config.moe.d_ff_expert or config.d_ff}
        data |= {key: moe[field] for field, key in family.moe.items()}
        if "greedy" in family.only.get("topk_method", ()):
            data["topk_method"] = "greedy" if config.moe.n_groups == 1 else "group_limited_greedy"
        if "d_ff_expert" not in family.moe:  # Mixtral's experts are as wide as its MLP would be
            data["intermediate_size"] = moe["d_ff_expert"]
    return data


def _rope(config: ModelConfig, family: Family) -> dict[str, Any]:
    """The rotary keys, in the spelling that releases before 5 read as well."""
    scaling: dict[str, Any] | None = None
    if config.rope_factor != 1:
        scaling = {"rope_type": "linear", "factor": config.rope_factor}
    for kind, (name, keys) in STRETCHES.items():
        if stretch := getattr(config, name):
            fields = {f: v for f, v in asdict(stretch).items() if v is not None}
            named = {key: fields[f] for f, key in keys.items() if f in fields}
            stated = {k: v for k, v in named.items() if v or not k.startswith("mscale")}
            scaling = {"rope_type": kind, **stated}
    data: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_scaling": scaling}
    if config.longrope:
        data[ORIGINAL] = config.longrope.original_max_positions
    if family.local_rope_theta:  # releases from 5 on take no theta of its own for each kind else
        sliding = [kind.rope_theta for kind in layer_configs(config) if kind.sliding_window]
        local = {"rope_type": "default", "rope_theta": next(iter(sliding), config.rope_theta)}
        full = {"rope_type": "default", **(scaling or {}), "rope_theta": config.rope_theta}
        data |= {"rope_parameters": {FULL: full, SLIDING: local}, LOCAL_THETA: local["rope_theta"]}
    return data


def _function(config: ModelConfig) -> ModelConfig:
    """The model without settings that only training uses."""
    moe = config.moe
    if moe is not None:
        width = moe.d_ff_expert or config.d_ff
        best = 1 if moe.n_groups == 1 else moe.best_of_group
        of_training = {**TRAINING, "bias_update_rate": 0.0, "best_of_group": best}
        moe = replace(moe, d_ff_expert=width, **of_training)
        if not moe.first_dense_layers and moe.every == 1:
            config = replace(config, d_ff=width)  # no layer has the dense MLP
    score_dim = 0 if config.score_dim == config.head_dim else config.score_dim
    head_dim = 0 if config.mla else config.head_dim
    return replace(config, moe=moe, head_dim=head_dim, score_dim=score_dim)
