"""Number of parameters, component by component.

    total = token table + position table + layers x (attention + MLP + norms) + final norm + head

RMSNorm has a scale, LayerNorm also a shift where the model has biases; the output head has no
bias and no weights of its own where the embeddings are tied.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError
from scaling.models.accounting.matrices import (
    Shape,
    attention_matrices,
    expert_width,
    mlp_matrices,
    n_dense_layers,
    n_moe_layers,
    query_key_dim,
)
from scaling.models.config import ModelConfig

QKV = ("q", "k", "v")  # names of `attention_matrices` that `qkv_bias` adds biases to


@dataclass(frozen=True)
class Parameters:
    """Counts over the whole model; `active` are those that one token uses."""

    components: Mapping[str, int]
    active: int

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.components.values())


def count_parameters(config: ModelConfig) -> Parameters:
    """Parameters of the whole model.

    `active` excludes the routed experts that a token does not use; both embedding tables count in
    full, as in the figures of model cards.

    Raises:
        InputError: learned positions whose table has no length yet (see `with_positions`).
    """
    components = {"token_embedding": config.vocab_size * config.d_model}
    if config.positions == "learned":
        components["position_table"] = _position_rows(config) * config.d_model
    for layers, moe in ((n_dense_layers(config), False), (n_moe_layers(config), True)):
        if layers:
            for name, count in block_parameters(config, moe).items():
                components[name] = components.get(name, 0) + layers * count
    components["final_norm"] = _norm(config)
    if not config.tied_embeddings:
        components["output_head"] = config.d_model * config.vocab_size
    return Parameters(components, sum(components.values()) - _idle_experts(config))


def block_parameters(config: ModelConfig, moe: bool | None = None) -> dict[str, int]:
    """Parameters of one block by component; `moe` None: experts where most blocks have them."""
    if moe is None:
        moe = n_moe_layers(config) > 0
    attention = {n: _projection(config, n, s) for n, s in attention_matrices(config).items()}
    mlp = _experts(config) if moe else _mlp(config, config.d_ff)
    return (
        {"norm1": _norm(config)} | attention | _inner_norms(config) | {"norm2": _norm(config)} | mlp
    )


def _position_rows(config: ModelConfig) -> int:
    if not config.max_positions:
        raise InputError(
            "the table of learned positions has no length: give max_positions, "
            "or the run's sequence length with with_positions(config, seq_len)"
        )
    return config.max_positions


def _projection(config: ModelConfig, name: str, shape: Shape) -> int:
    has_own_bias = config.qkv_bias and not config.bias and name in QKV
    return _matrix(config, shape) + (shape[1] if has_own_bias else 0)


def _matrix(config: ModelConfig, shape: Shape) -> int:
    inputs, outputs = shape
    return inputs * outputs + (outputs if config.bias else 0)


def _norm(config: ModelConfig) -> int:
    has_shift = config.norm == "layernorm" and config.bias
    return config.d_model * (2 if has_shift else 1)


def _inner_norms(config: ModelConfig) -> dict[str, int]:
    """RMSNorm scales inside the attention: over a head of q and k, or over the latent vectors."""
    K = query_key_dim(config)
    norms = {"q_norm": K, "k_norm": K} if config.qk_norm else {}
    if config.mla:
        norms["kv_a_norm"] = config.mla.kv_lora_rank
        if config.mla.q_lora_rank is not None:
            norms["q_a_norm"] = config.mla.q_lora_rank
    return norms


def _mlp(config: ModelConfig, d_ff: int, prefix: str = "", copies: int = 1) -> dict[str, int]:
    matrices = mlp_matrices(config, d_ff)
    return {prefix + name: copies * _matrix(config, shape) for name, shape in matrices.items()}


def _experts(config: ModelConfig) -> dict[str, int]:
    """Router (no bias of its own), routed experts and shared experts.

    A selection bias is one number per routed expert (DeepSeek-V3, arXiv 2412.19437, equation 16).
    """
    moe = config.moe
    assert moe is not None
    width, shared = expert_width(config), moe.n_shared_experts
    parts = {"router": config.d_model * moe.n_experts}
    if moe.selection_bias:
        parts["router_bias"] = moe.n_experts
    if shared:
        parts |= _mlp(config, width, "shared_", shared)
    return parts | _mlp(config, width, "expert_", moe.n_experts)


def _idle_experts(config: ModelConfig) -> int:
    if config.moe is None:
        return 0
    idle = config.moe.n_experts - config.moe.experts_per_token
    one_expert = sum(_mlp(config, expert_width(config)).values())
    return n_moe_layers(config) * idle * one_expert
