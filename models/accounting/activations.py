"""Bytes that the forward pass saves for the backward pass, tensor by tensor, and the KV cache.

One line per tensor below: its name, its elements per token, and the name by which a remat policy
(`models.accounting.remat`) keeps it. The lines are the inputs of the gradients' formulas, each
tensor once; a compiler may save fewer (recomputing cheap ones) or more (copies in another number
format).
"""

from dataclasses import dataclass
from typing import Any

from scaling.meshes.errors import InputError, nearest
from scaling.models.accounting.matrices import (
    BYTES,
    STORED_BYTES,
    Number,
    expert_width,
    n_moe_layers,
    query_key_dim,
    value_dim,
)
from scaling.models.accounting.remat import Remat, kept_by
from scaling.models.config import ModelConfig

ALWAYS, NEVER = "always", ""  # by every policy; by "none" alone


@dataclass(frozen=True)
class Activation:
    """A tensor of one block. `always_fp32`: softmax statistics and router probabilities."""

    name: str
    elements: Number  # per token
    kept_as: str = NEVER  # its name in remat policies
    always_fp32: bool = False


@dataclass(frozen=True)
class SavedRow:
    """One tensor that remat keeps in equal layers, with its bytes on one device."""

    tensor: str
    kept_as: str  # its name in `remat`; "": none
    memory: str  # "device" or "host"
    layers: str  # "layers" or "layers with experts"
    layer_bytes: int  # of one layer and microbatch
    bytes: int  # of all layers and microbatches that a device keeps at a time


def activation_bytes(
    config: ModelConfig,
    batch: Number,
    seq: Number,
    remat: Remat = "none",
    dtype: str = "bf16",
    attention: str = "flash",
    moe: bool | None = None,
) -> dict[str, Number]:
    """Bytes that one block saves from its forward for its backward pass, by tensor.

    Args:
        config: the model.
        batch: sequences.
        seq: tokens per sequence.
        remat: a policy; tensors that it keeps in the host's memory count as well.
        dtype: the number format of the computation.
        attention: "flash" saves one log-sum-exp per query, "unfused" all probabilities.
        moe: True for a block with experts, False with the dense MLP; None: as most blocks.

    Raises:
        InputError: an unknown policy, number format or attention.
    """
    kept = kept_by(remat)
    _check_choice("dtype", dtype, BYTES)
    return {
        t.name: batch * seq * t.elements * (BYTES["fp32"] if t.always_fp32 else BYTES[dtype])
        for t in activation_tensors(config, seq, attention, moe)
        if kept is None or t.kept_as == ALWAYS or t.kept_as in kept.names
    }


def activation_tensors(
    config: ModelConfig, seq: Number, attention: str = "flash", moe: bool | None = None
) -> tuple[Activation, ...]:
    """Every tensor of one block that some policy saves, in the order of the forward pass."""
    _check_choice("attention", attention, ("flash", "unfused"))
    attention = "unfused" if config.score_softcap else attention
    D, heads = config.d_model, config.n_heads
    kv_heads = heads if config.mla else config.n_kv_heads
    K, V = query_key_dim(config), value_dim(config)
    tensors = [
        Activation("block_input", D, ALWAYS),
        *([Activation("norm1_output", D)] if config.norms != "after" else []),
        Activation("q", heads * K, "query"),
        Activation("k", kv_heads * K, "key"),
        Activation("v", kv_heads * V, "value"),
        Activation("attention_output", heads * V, "attention"),
        Activation("log_sum_exp", heads, "attention", always_fp32=True)
        if attention == "flash"
        else Activation("probabilities", heads * seq),
    ]
    if config.score_softcap:
        tensors.append(Activation("capped_scores", heads * seq, always_fp32=True))
    if config.norms_heads:  # the norms' own inputs, beside what the attention takes
        tensors.append(Activation("qk_norm_input", (heads + kv_heads) * K))
    if mla := config.mla:  # compressed vectors before and after their norm
        latents = (mla.q_lora_rank or 0) + mla.kv_lora_rank
        tensors.append(Activation("latents", latents + mla.qk_rope_head_dim))
        tensors.append(Activation("latent_norm_outputs", latents))
    # By name it is what is added to the block's input, or the input of a norm before: as large.
    tensors.append(Activation("residual", D, "attention_out"))
    if config.has_post_norms:
        tensors += [Activation("attention_sum", D), Activation("mlp_output", D)]
    if config.norms != "after":
        tensors.append(Activation("norm2_output", D))
    has_experts = n_moe_layers(config) > 0 if moe is None else moe
    mlp = _expert_tensors(config) if has_experts else _mlp_tensors(config, config.d_ff)
    return (*tensors, *mlp)


def _mlp_tensors(config: ModelConfig, width: int, prefix: str = "") -> list[Activation]:
    """Input and output of the activation; with swiglu the gate as well."""
    gate = [Activation(prefix + "gate", width, "mlp_gate")] if config.is_gated else []
    hidden = Activation(prefix + "hidden", width)  # input of down
    return [*gate, Activation(prefix + "up", width, "mlp_up"), hidden]


def _expert_tensors(config: ModelConfig) -> list[Activation]:
    """Tensors of the router, the copies of tokens for their experts, and the experts' MLPs.

    The router's weights multiply the hidden units, so the results are not saved. Empty rows of
    buffers are not counted (what devices keep: `scaling.analytic.experts.saved_expert_rows`).
    """
    moe = config.moe
    assert moe is not None
    copies, width, shared = moe.experts_per_token, expert_width(config), moe.n_shared_experts
    return [
        Activation("router_probabilities", moe.n_experts, always_fp32=True),
        Activation("expert_input", copies * config.d_model, "expert_input"),
        *_mlp_tensors(config, copies * width, "expert_"),
        *(_mlp_tensors(config, shared * width, "shared_") if shared else []),
    ]


def kv_cache_bytes(config: ModelConfig, tokens: Number = 1, dtype: str = "bf16") -> Number:
    """Bytes of the KV cache for `tokens` positions of one sequence.

        2 x layers x kv_heads x head_dim x bytes        (keys and values)
        layers x (kv_lora_rank + qk_rope_head_dim) x bytes        (latent attention)

    `dtype` is a key of STORED_BYTES. With a sliding window older positions are dropped; pass no
    more `tokens` than `mean_context`.
    """
    _check_choice("dtype", dtype, STORED_BYTES)
    if config.mla:
        elements = config.mla.kv_lora_rank + config.mla.qk_rope_head_dim
    else:
        elements = 2 * config.n_kv_heads * config.head_dim
    return tokens * config.n_layers * elements * STORED_BYTES[dtype]


def _check_choice(name: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise InputError(f"{name}={value!r} is not a choice; {nearest(str(value), choices)}")
