"""The weight matrices of the layers, from which parameters and FLOPs follow.

    x_BSD -> norm1 -> attention (q, k, v, scores, values, o) -> + x -> norm2 -> MLP or experts -> +

A matrix of I inputs and O outputs holds I * O weights and, with biases, O more; it costs
2 * I * O FLOPs per token that passes it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.models.config import ModelConfig, layer_configs

Number = Any  # int, float or numpy array
Shape = tuple[int, int]  # inputs, outputs
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # tf32 is stored as fp32
# Bytes of a value in every format that tensors are kept in: those above, and formats that only
# serving has (int4 and fp4 are packed in pairs). The trainer knows none of the latter.
STORED_BYTES: dict[str, float] = {**BYTES, "int8": 1, "int4": 0.5, "fp4": 0.5}
# ... and in every format that arrays of a question have.
NUMBER_BYTES: dict[str, float] = {**STORED_BYTES, "int32": 4, "int16": 2}


# Matrices that multiply the same input -> the product that they are where they run as one.
SAME_INPUT = {
    **dict.fromkeys(("q", "k", "v"), "qkv"),
    **dict.fromkeys(("q_a", "kv_a"), "latents"),
    **dict.fromkeys(("gate", "up"), "gate and up"),
    **dict.fromkeys(("expert_gate", "expert_up"), "experts' gate and up"),
    **dict.fromkeys(("shared_gate", "shared_up"), "shared gate and up"),
}
OF_LATENTS = ("q_b", "kv_b")  # whose inputs are latents
OF_HEADS = ("q", "k", "v", "o", "q_b", "kv_b")  # matrices that tensor cuts head by head


@dataclass(frozen=True)
class Stack:
    """Equal matrices of the layers, stored as one array."""

    name: str
    layers: int
    inputs: int
    outputs: int
    over_tensor: bool = True  # tensor shards the columns
    experts: int | None = None  # per layer; None: not a matrix of experts
    used: int = 1  # matrices per layer that a token passes

    @property
    def matrices(self) -> int:
        """Number of matrices."""
        return self.layers * (self.experts or 1)

    @property
    def size(self) -> int:
        """Elements of one matrix."""
        return self.inputs * self.outputs

    @property
    def is_last(self) -> bool:
        """True for the last matrix of attention or MLP, which writes into the residual stream."""
        return self.name == "o" or self.name.endswith("down")

    @property
    def rows(self) -> int:
        """The dimension that fsdp shards: d_model, or a latent."""
        return self.outputs if self.is_last else self.inputs

    @property
    def columns(self) -> int:
        """The other dimension."""
        return self.size // self.rows


def stacks(config: ModelConfig) -> list[Stack]:
    """All matrices of the layers; leading dense layers have their own stacks."""
    return [s for moe, layers in layer_kinds(config) for s in block_stacks(config, moe, layers)]


def block_stacks(config: ModelConfig, moe: bool, layers: int = 1) -> Iterator[Stack]:
    """Yields the matrices of equal layers, with experts or the dense MLP.

    Shared experts stand side by side as one MLP.
    """
    latents = compressing_matrices(config)
    for name, shape in attention_matrices(config).items():
        yield Stack(name, layers, *shape, over_tensor=name not in latents)
    if not moe:
        for name, shape in mlp_matrices(config, config.d_ff).items():
            yield Stack(name, layers, *shape)
        return
    experts, width = config.moe, expert_width(config)
    assert experts is not None
    yield Stack("router", layers, config.d_model, experts.n_experts, over_tensor=False)
    count, used = experts.n_experts, experts.experts_per_token
    for name, shape in mlp_matrices(config, width).items():
        yield Stack(f"expert_{name}", layers, *shape, experts=count, used=used)
    if shared := experts.n_shared_experts:
        for name, shape in mlp_matrices(config, shared * width).items():
            yield Stack(f"shared_{name}", layers, *shape)


def share_of_device(config: ModelConfig, stack: Stack, tensor: Number) -> Number:
    """Share of a matrix on one device of `tensor`: whole heads and hidden units.

    Where there are fewer heads of keys and values than devices, each device has a copy of one.
    """
    if not stack.over_tensor:
        return 1.0
    heads = config.n_kv_heads if stack.name in ("k", "v") else config.n_heads
    units = heads if stack.name in OF_HEADS else stack.columns
    return -(-units // tensor) / units


def matrix_of_device(config: ModelConfig, stack: Stack, tensor: Number) -> tuple[Number, Number]:
    """Inputs and outputs of a matrix on one device of `tensor`, which never cuts the stream."""
    share = share_of_device(config, stack, tensor)
    inputs, outputs = float(stack.inputs), float(stack.outputs)
    return (inputs * share, outputs) if stack.is_last else (inputs, outputs * share)


def attention_matrices(config: ModelConfig) -> dict[str, Shape]:
    """Projections of the attention: q, k, v, o; of latent attention q_a, q_b, kv_a, kv_b, o."""
    if config.mla:
        return _latent_matrices(config)
    D, heads, kv_heads, K = config.d_model, config.n_heads, config.n_kv_heads, config.head_dim
    return {
        "q": (D, heads * K),
        "k": (D, kv_heads * K),
        "v": (D, kv_heads * K),
        "o": (heads * K, D),
    }


def _latent_matrices(config: ModelConfig) -> dict[str, Shape]:
    """DeepSeek-V2, arXiv 2405.04434, equations 9 to 19: `_a` compresses, `_b` expands per head."""
    assert config.mla is not None
    mla, D, heads = config.mla, config.d_model, config.n_heads
    queries = heads * query_key_dim(config)
    query: dict[str, Shape] = {"q": (D, queries)}
    if mla.q_lora_rank is not None:
        query = {"q_a": (D, mla.q_lora_rank), "q_b": (mla.q_lora_rank, queries)}
    return query | {
        "kv_a": (D, mla.kv_lora_rank + mla.qk_rope_head_dim),
        "kv_b": (mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim)),
        "o": (heads * mla.v_head_dim, D),
    }


def compressing_matrices(config: ModelConfig) -> dict[str, Shape]:
    """The matrices of latent attention that compute the latents: replicated over `tensor`."""
    if config.mla is None:
        return {}
    return {n: s for n, s in _latent_matrices(config).items() if n in ("q_a", "kv_a")}


def gathered_width(config: ModelConfig) -> int:
    """Elements per token that are all-gathered over `tensor` at the input of the attention.

    d_model; for latent attention the latents, plus d_model if queries are projected directly.
    """
    if config.mla is None:
        return config.d_model
    direct = config.d_model if config.mla.q_lora_rank is None else 0
    return direct + sum(outputs for _, outputs in compressing_matrices(config).values())


def mlp_matrices(config: ModelConfig, d_ff: int) -> dict[str, Shape]:
    """One MLP (or one expert) of hidden width `d_ff`: up and down, with swiglu a gate as well."""
    D = config.d_model
    gate: dict[str, Shape] = {"gate": (D, d_ff)} if config.is_gated else {}
    return gate | {"up": (D, d_ff), "down": (d_ff, D)}


def query_key_dim(config: ModelConfig) -> int:
    """Length of the vectors whose dot product is an attention score, per head."""
    mla = config.mla
    return mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else config.head_dim


def value_dim(config: ModelConfig) -> int:
    """Length of a value vector, per head."""
    return config.mla.v_head_dim if config.mla else config.head_dim


def expert_width(config: ModelConfig) -> int:
    """Hidden width of one expert: `moe.d_ff_expert`, by default the model's d_ff."""
    assert config.moe is not None
    return config.moe.d_ff_expert or config.d_ff


def n_dense_layers(config: ModelConfig) -> int:
    """Layers with the dense MLP: all of them; of a mixture of experts the leading ones, or those
    that every so many leave."""
    if not config.moe:
        return config.n_layers
    if config.moe.every > 1:
        return config.n_layers - config.n_layers // config.moe.every
    return min(config.moe.first_dense_layers, config.n_layers)


def n_moe_layers(config: ModelConfig) -> int:
    """Layers with experts."""
    return config.n_layers - n_dense_layers(config)


def layer_kinds(config: ModelConfig) -> tuple[tuple[bool, int], ...]:
    """(has experts, number of layers) for each kind of layer that the model has."""
    kinds = (False, n_dense_layers(config)), (True, n_moe_layers(config))
    return tuple((moe, layers) for moe, layers in kinds if layers)


@dataclass(frozen=True)
class Reach:
    """How far back a layer attends: a window or chunks, in tokens; None: to all tokens before."""

    window: int | None = None
    chunk: int | None = None

    def __str__(self) -> str:
        limits = (("windows", self.window), ("chunks", self.chunk))
        return " ".join(f"in {name} of {size}" for name, size in limits if size)

    def is_cut(self, seq: Number) -> bool:
        """True if a sequence has several chunks."""
        return self.chunk is not None and self.chunk < seq

    def context(self, seq: Number) -> Number:
        """Tokens of a sequence that they span."""
        least = min if isinstance(seq, int) else np.minimum
        for limit in (self.window, self.chunk):
            seq = seq if limit is None else least(seq, limit)
        return seq


def layer_reaches(config: ModelConfig) -> dict[Reach, int]:
    """Number of layers by what their scores span."""
    kinds, counts = layer_configs(config), Counter[Reach]()
    for place, kind in enumerate(kinds):
        reach = Reach(kind.sliding_window, kind.attention_chunk)
        counts[reach] += len(range(place, config.n_layers, len(kinds)))
    return dict(counts)


def mean_context(config: ModelConfig, seq: Number, windows: bool = True) -> Number:
    """Tokens of a sequence that a layer's scores span, the mean over the layers; an int where it is
    one. Without `windows` those that attention computes and masks count too."""
    reaches = layer_reaches(config)
    if not windows:
        counts = Counter[Reach]()
        for reach, layers in reaches.items():
            counts[replace(reach, window=None)] += layers
        reaches = dict(counts)
    if len(reaches) == 1:
        return next(iter(reaches)).context(seq)
    total = sum(layers * reach.context(seq) for reach, layers in reaches.items())
    return total / config.n_layers if np.any(total % config.n_layers) else total // config.n_layers


@dataclass(frozen=True)
class LayerStack:
    """Layers whose parameters are stored as one stack."""

    name: str  # of the stack in the model
    layers: tuple[int, ...]  # their numbers
    moe: bool  # with experts


def layer_stacks(config: ModelConfig) -> list[LayerStack]:
    """The stacks of a model's layers: dense ones of a mixture of experts, `layers`, and those that
    fill no whole pattern."""
    dense, has_experts = n_dense_layers(config), n_moe_layers(config) > 0
    numbers = tuple(range(config.n_layers))
    first, rest = dense if has_experts else 0, config.n_layers
    if config.moe and (every := config.moe.every) > 1:
        numbers = tuple(sorted(numbers, key=lambda i: (i + 1) % every == 0))  # dense ones first
    else:
        rest -= (config.n_layers - first) % config.pattern_length
    every_stack = [
        LayerStack("dense_layers", numbers[:first], False),
        LayerStack("layers", numbers[first:rest], has_experts),
        LayerStack("last_layers", numbers[rest:], has_experts),
    ]
    return [stack for stack in every_stack if stack.layers]


def layer_scans(config: ModelConfig) -> list[tuple[LayerStack, ...]]:
    """The stacks in the order in which they are scanned, those of one pattern together."""
    stacks = layer_stacks(config)
    takes_turns = config.moe is not None and config.moe.every > 1
    return [tuple(stacks)] if takes_turns else [(stack,) for stack in stacks]
