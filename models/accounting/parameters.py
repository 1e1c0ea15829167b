"""Number of parameters, component by component.

    total = token table + position table + layers x (attention + MLP + norms) + final norm + head

RMSNorm has a scale, LayerNorm also a shift where the model has biases; the output head has no
bias and no weights of its own where the embeddings are tied.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError
from scaling.models.accounting.matrices import (
    Stack,
    block_stacks,
    layer_kinds,
    n_moe_layers,
    query_key_dim,
    stacks,
)
from scaling.models.config import ModelConfig

QKV = ("q", "k", "v")  # the matrices that `qkv_bias` adds biases to


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
    components = Counter(token_embedding=config.vocab_size * config.d_model)
    if config.positions == "learned":
        if not config.max_positions:
            raise InputError(
                "the table of learned positions has no length: give max_positions, "
                "or the run's sequence length with with_positions(config, seq_len)"
            )
        components["position_table"] = config.max_positions * config.d_model
    for moe, layers in layer_kinds(config):
        for name, count in block_parameters(config, moe).items():
            components[name] += layers * count
    components["final_norm"] = _norm(config)
    if not config.tied_embeddings:
        components["output_head"] = config.d_model * config.vocab_size
    idle = [
        s.layers * (s.experts - s.used) * _matrix(config, s) for s in stacks(config) if s.experts
    ]
    return Parameters(components, components.total() - sum(idle))


def block_parameters(config: ModelConfig, moe: bool | None = None) -> dict[str, int]:
    """Parameters of one block by component; `moe` None: experts where most blocks have them.

    A selection bias is one number per routed expert (DeepSeek-V3, arXiv 2412.19437, equation 16).
    """
    if moe is None:
        moe = n_moe_layers(config) > 0
    counts = {s.name: s.matrices * _matrix(config, s) for s in block_stacks(config, moe)}
    if moe and config.moe and config.moe.selection_bias:
        counts["router_bias"] = config.moe.n_experts
    places = {"before": ("",), "after": ("post_",), "both": ("", "post_")}[config.norms]
    norms = {f"{place}norm{i}": _norm(config) for i in (1, 2) for place in places}
    sinks = {"sinks": config.n_heads} if config.sinks else {}
    return counts | sinks | _inner_norms(config) | norms


def _matrix(config: ModelConfig, stack: Stack) -> int:
    """One matrix with its bias, if it has one."""
    has_bias = config.bias or config.qkv_bias and stack.name in QKV
    return stack.size + (stack.outputs if has_bias else 0)


def _norm(config: ModelConfig) -> int:
    has_shift = config.norm == "layernorm" and config.bias
    return config.d_model * (2 if has_shift else 1)


def _inner_norms(config: ModelConfig) -> dict[str, int]:
    """RMSNorm scales inside the attention: over a head of q and k or all of them, over latents."""
    norms = {}
    if config.qk_norm:
        norms = {"q_norm": query_key_dim(config), "k_norm": query_key_dim(config)}
        if config.qk_norm_over == "projection":
            heads = {"q_norm": config.n_heads, "k_norm": config.n_kv_heads}
            norms = {name: heads[name] * size for name, size in norms.items()}
    if config.mla:
        norms["kv_a_norm"] = config.mla.kv_lora_rank
        if config.mla.q_lora_rank is not None:
            norms["q_a_norm"] = config.mla.q_lora_rank
    return norms
