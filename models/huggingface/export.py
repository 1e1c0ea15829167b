"""A ModelConfig as a Hugging Face config.json: the inverse of `models.huggingface.read.translate`.

The first family whose file, read back, gives the same model is taken; a model that none expresses
is refused with the fields that differ.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from scaling.meshes.errors import InputError
from scaling.models.config import ModelConfig
from scaling.models.huggingface.families import Family, families
from scaling.models.huggingface.read import LLAMA3_SCALING, YARN_SCALING, translate

ACTIVATIONS = {"swiglu": "silu", "gelu": "gelu_new", "relu": "relu"}
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
    data |= {"dtype": dtype, "torch_dtype": dtype}
    data |= {key: getattr(config, field) for field, key in family.shapes.items()}
    data |= {key: config.bias for key in family.bias_keys}
    data |= {key: values[0] for key, values in family.only.items()}
    activation, keys = ACTIVATIONS[config.mlp], ("hidden_act", "activation_function")
    data |= {key: activation for key in keys if activation in family.only.get(key, ())}
    if family.rope_theta:
        # with YaRN releases of transformers before 5 derive its factor from the longest sequence
        yarn = config.yarn
        longest = seq_len if yarn is None else round(yarn.factor * yarn.original_max_positions)
        data |= _rope(config) | {"max_position_embeddings": longest}
    if family.window != "none":
        data["sliding_window"] = config.sliding_window
    if family.window == "switched":
        switched = {"use_sliding_window": config.sliding_window is not None}
        data |= switched | {"max_window_layers": 0 if config.sliding_window else config.n_layers}
    if family.mla and config.mla:
        data |= asdict(config.mla) | {"rope_interleave": True}
        data["qk_head_dim"] = config.mla.qk_nope_head_dim + config.mla.qk_rope_head_dim
        data["head_dim"] = config.mla.qk_rope_head_dim
    if family.moe and config.moe:
        moe = asdict(config.moe) | {"d_ff_expert": config.moe.d_ff_expert or config.d_ff}
        data |= {key: moe[field] for field, key in family.moe.items()}
        if "d_ff_expert" not in family.moe:  # Mixtral's experts are as wide as its MLP would be
            data["intermediate_size"] = moe["d_ff_expert"]
    return data


def _rope(config: ModelConfig) -> dict[str, Any]:
    """The rotary keys, in the spelling that releases before 5 read as well."""
    scaling: dict[str, Any] | None = None
    if config.rope_scaling:
        fields: Mapping[str, Any] = asdict(config.rope_scaling)
        scaling = {"rope_type": "llama3", **{k: fields[f] for f, k in LLAMA3_SCALING.items()}}
    if config.yarn:
        fields = {f: v for f, v in asdict(config.yarn).items() if v is not None}
        named = {key: fields[f] for f, key in YARN_SCALING.items() if f in fields}
        stated = {k: v for k, v in named.items() if v or not k.startswith("mscale")}
        scaling = {"rope_type": "yarn", **stated}
    return {"rope_theta": config.rope_theta, "rope_scaling": scaling}


def _function(config: ModelConfig) -> ModelConfig:
    """The model without settings that only training uses."""
    moe = config.moe
    if moe is not None:
        width = moe.d_ff_expert or config.d_ff
        moe = replace(moe, bias_update_rate=0.0, d_ff_expert=width, **TRAINING)
        if not moe.first_dense_layers:
            config = replace(config, d_ff=width)  # no layer has the dense MLP
    return replace(config, moe=moe, head_dim=0 if config.mla else config.head_dim)
