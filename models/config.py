"""The shapes and options of a decoder-only transformer, as plain data (no jax)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from scaling.meshes.errors import InputError, check_fields


def _check_positive(owner: object, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name}={value} must be a positive number")


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank q, k and v."""

    q_lora_rank: int | None  # None: queries are projected directly
    kv_lora_rank: int
    qk_nope_head_dim: int  # per head, without rotation
    qk_rope_head_dim: int  # rotated part; the key's is shared by all heads
    v_head_dim: int

    def __post_init__(self) -> None:
        check_fields(self, vars(self), 1)


_RATES = ("bias_update_rate", "aux_loss", "z_loss")  # of Moe: not negative, 0 is off


@dataclass(frozen=True)
class Moe:
    """Mixture of experts in place of the MLP."""

    n_experts: int
    experts_per_token: int
    d_ff_expert: int | None = None  # None: the model's d_ff
    n_shared_experts: int = 0  # always active, each of d_ff_expert
    first_dense_layers: int = 0  # leading layers that keep the dense MLP
    capacity_factor: float | None = None  # rows of an expert over an even load; None: no bound
    device_capacity_factor: float | None = None  # of all experts of a device; both None: dropless
    skew: float = 1.0  # busiest expert's load over the mean; 1.0 is balanced
    gate: Literal["softmax", "sigmoid"] = "softmax"  # of the router's logits
    normalize_weights: bool = True  # a token's weights are divided by their sum
    routed_scaling: float = 1.0  # and multiplied by this
    selection_bias: bool = False  # per expert, added to select experts but not to weigh them
    bias_update_rate: float = 0.0  # of that bias per step, against the sign of the excess load
    n_groups: int = 1  # groups of experts, of which a token selects the best first
    groups_per_token: int = 1
    aux_loss: float = 0.0  # weight of the load-balancing loss (models/moe/routing.py)
    z_loss: float = 0.0  # weight of the router's z-loss (likewise)
    best_of_group: int = 2  # largest scores of a group, whose sum is the group's (DeepSeek-V2: 1)

    def __post_init__(self) -> None:
        check_fields(self, ("n_experts", "skew", "n_groups", "best_of_group"), 1)
        check_fields(self, ("d_ff_expert",), 1, LARGEST_SIZE)
        check_fields(self, ("n_shared_experts", "first_dense_layers", *_RATES), 0)
        _check_positive(self, ("routed_scaling", "capacity_factor", "device_capacity_factor"))
        if self.capacity_factor is not None and self.device_capacity_factor is not None:
            raise InputError(
                f"capacity_factor={self.capacity_factor} bounds each expert and "
                f"device_capacity_factor={self.device_capacity_factor} those of a device together: "
                "set one of them to null"
            )
        if not 1 <= self.experts_per_token <= self.n_experts:
            raise InputError(
                f"experts_per_token={self.experts_per_token} must lie between 1 and "
                f"n_experts={self.n_experts}"
            )
        if self.bias_update_rate and not self.selection_bias:
            raise InputError(
                f"bias_update_rate={self.bias_update_rate} has no bias to update; "
                "set selection_bias true"
            )
        self._check_groups()

    def _check_groups(self) -> None:
        """Raise InputError unless a token's experts fit into its groups."""
        if self.n_experts % self.n_groups:
            raise InputError(
                f"n_experts={self.n_experts} is not divisible by n_groups={self.n_groups}"
            )
        if not 1 <= self.groups_per_token <= self.n_groups:
            raise InputError(
                f"groups_per_token={self.groups_per_token} must lie between 1 and "
                f"n_groups={self.n_groups}"
            )
        selectable = self.groups_per_token * self.n_experts // self.n_groups
        if self.experts_per_token > selectable:
            raise InputError(
                f"experts_per_token={self.experts_per_token} exceeds the {selectable} experts "
                f"of groups_per_token={self.groups_per_token}; raise groups_per_token"
            )


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretch of rotary wavelengths (Hugging Face `rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int

    def __post_init__(self) -> None:
        check_fields(self, ("factor", "original_max_positions"), 1)
        if not 0 < self.low_freq_factor < self.high_freq_factor:
            raise InputError(
                f"low_freq_factor={self.low_freq_factor} must be positive and below "
                f"high_freq_factor={self.high_freq_factor}"
            )


@dataclass(frozen=True)
class Yarn:
    """YaRN (arXiv 2309.00071): long wavelengths stretched, short ones kept, scores sharpened.

    Names, defaults and meanings are Hugging Face's (`rope_type: yarn`).
    """

    factor: float  # of the longest sequence over that before
    original_max_positions: int
    beta_fast: float = 32.0  # turns within the original sequence from which a pair is kept
    beta_slow: float = 1.0  # turns below which it is stretched by the whole factor
    attention_factor: float | None = None  # of rotated q and k; None: follows from the others
    mscale: float = 0.0  # 0: not given
    mscale_all_dim: float = 0.0  # 0: not given; with latent attention it also scales the scores
    truncate: bool = True  # the ramp between the two begins and ends at whole pairs

    def __post_init__(self) -> None:
        check_fields(self, ("factor", "original_max_positions"), 1)
        check_fields(self, ("mscale", "mscale_all_dim"), 0)
        if not 0 < self.beta_slow < self.beta_fast:
            raise InputError(
                f"beta_slow={self.beta_slow} must be positive and below beta_fast={self.beta_fast}"
            )
        _check_positive(self, ("attention_factor",))


@dataclass(frozen=True)
class LongRope:
    """LongRoPE (arXiv 2402.13753): each pair of channels has a stretch of its own.

    Names and meanings are Hugging Face's (`rope_type: longrope`).
    """

    short_factor: tuple[float, ...]  # of each pair, in sequences up to the original length
    long_factor: tuple[float, ...]  # and in longer ones
    original_max_positions: int
    factor: float = 1.0  # of the longest sequence over the original: sets the scale of q and k
    attention_factor: float | None = None  # that scale; None: follows from the others

    def __post_init__(self) -> None:
        check_fields(self, ("original_max_positions", "factor"), 1)
        _check_positive(self, ("attention_factor",))
        if not self.short_factor or len(self.short_factor) != len(self.long_factor):
            raise InputError(
                f"longrope has {len(self.short_factor)} short and {len(self.long_factor)} long "
                "factors; give one of each for every pair of rotated channels"
            )
        if not all(0 < factor < math.inf for factor in (*self.short_factor, *self.long_factor)):
            raise InputError("the factors of longrope must be positive numbers")


@dataclass(frozen=True)
class LayerKind:
    """Settings of the layers at one place of a pattern, which other layers need not have."""

    sliding_window: int | None = None  # tokens each position sees, itself included; None: all
    rope_theta: float = 0.0  # 0: the model's
    is_stretched: bool = True  # by the model's rope_scaling, yarn, longrope or rope_factor

    def __post_init__(self) -> None:
        check_fields(self, ("sliding_window",), 1)
        check_fields(self, ("rope_theta",), 0)


LARGEST_VOCABULARY = 2**31 - 1  # token ids are int32
LARGEST_SIZE = 1 << 20  # so that the bytes of layers x inputs x outputs stay below 2**63


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and options of one transformer. Fields left at 0 are derived as their comment says."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    n_kv_heads: int = 0  # 0: n_heads
    head_dim: int = 0  # 0: d_model / n_heads
    mlp: Literal["swiglu", "geglu", "clamped_swiglu", "gelu", "relu"] = "swiglu"  # models/mlp.py
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_eps: float = 1e-5
    positions: Literal["rope", "learned", "alibi", "none"] = "rope"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    yarn: Yarn | None = None  # another way to stretch rotary positions
    max_positions: int = 0  # rows of the learned table; 0: the run's seq_len
    tied_embeddings: bool = False
    bias: bool = False  # on every projection and, with layernorm, on the norms
    qkv_bias: bool = False  # on the projections of q, k and v only (Qwen2)
    qk_norm: bool = False  # RMSNorm over each head of q and k (Qwen3)
    sliding_window: int | None = None  # tokens each position sees, itself included
    mla: Mla | None = None
    moe: Moe | None = None
    layers: tuple[LayerKind, ...] = ()  # repeated over the layers; empty: all are alike
    norms: Literal["before", "after", "both"] = "before"  # of attention and MLP
    norm_offset: bool = False  # norms multiply by 1 + their scale (Gemma)
    qk_norm_over: Literal["head", "projection"] = "head"  # what qk_norm normalises at once
    embedding_scale: bool = False  # embedded tokens are multiplied by sqrt(d_model) (Gemma)
    score_dim: int = 0  # scores are q k / sqrt of it; 0: of the length of q and k
    score_softcap: float = 0.0  # c: scores s become c tanh(s / c) (Gemma 2); 0: none
    logit_softcap: float = 0.0  # likewise of the logits
    # A learned score of each head that takes its share of the softmax (gpt-oss).
    sinks: bool = False
    rotated: float = 1.0  # share of a head's channels, the first ones, that are rotated
    rope_factor: float = 1.0  # rotary positions are divided by it
    longrope: LongRope | None = None  # another way to stretch rotary positions
    fused_files: bool = False  # its files hold q, k and v as one tensor, gate and up too (Phi-3)

    @property
    def is_gated(self) -> bool:
        """True for an MLP whose hidden units are products of two."""
        return self.mlp in GATED

    @property
    def has_post_norms(self) -> bool:
        """True where a norm follows attention and MLP."""
        return self.norms != "before"

    @property
    def rotated_channels(self) -> int:
        """Channels of a head that rotary positions rotate: the first, or latent attention's own."""
        return self.mla.qk_rope_head_dim if self.mla else int(self.head_dim * self.rotated)

    def __post_init__(self) -> None:
        check_fields(self, ("vocab_size",), 1, LARGEST_VOCABULARY)
        check_fields(self, ("rope_theta", "sliding_window", "rope_factor"), 1)
        check_fields(self, ("score_dim", "score_softcap", "logit_softcap"), 0)
        check_fields(self, ("d_model", "n_layers", "n_heads", "d_ff"), 1, LARGEST_SIZE)
        check_fields(self, ("n_kv_heads", "head_dim"), 0, LARGEST_SIZE)
        check_fields(self, ("max_positions", "norm_eps"), 0)
        if self.moe and self.moe.first_dense_layers > self.n_layers:
            raise InputError(
                f"first_dense_layers={self.moe.first_dense_layers} exceeds n_layers={self.n_layers}"
            )
        if not self.n_kv_heads:
            object.__setattr__(self, "n_kv_heads", self.n_heads)
        if not self.head_dim:
            if self.d_model % self.n_heads:
                raise InputError(
                    f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}; "
                    "give head_dim"
                )
            object.__setattr__(self, "head_dim", self.d_model // self.n_heads)
        if self.n_heads % self.n_kv_heads:
            raise InputError(
                f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}"
            )
        if self.qkv_bias and self.mla:
            raise InputError("latent attention has no qkv_bias; set qkv_bias to false")
        self._check_pattern()
        stretches = ("rope_scaling", "yarn", "longrope")
        given = [name for name in stretches if getattr(self, name)]
        if len(given) > 1 or given and self.rope_factor != 1:
            named = " or ".join((*given, *["rope_factor"] * (self.rope_factor != 1)))
            raise InputError(f"give either {named}: both stretch rotary positions")
        if self.yarn and self.rope_theta == 1:
            raise InputError("yarn needs wavelengths that differ; use rope_theta above 1")
        if self.positions == "rope" and not self.mla and self.head_dim % 2:
            raise InputError(f"rotary positions need an even head_dim, got {self.head_dim}")
        if self.mla and (self.rotated != 1 or self.score_dim or self.qk_norm_over != "head"):
            raise InputError("latent attention has no rotated, score_dim or qk_norm_over")
        is_odd = not self.mla and self.positions == "rope" and self.rotated_channels % 2
        if not 0 < self.rotated <= 1 or is_odd:
            raise InputError(
                f"rotated={self.rotated} must be a share of head_dim={self.head_dim} above 0 that "
                "is an even number of channels"
            )
        if self.longrope and len(self.longrope.short_factor) != self.rotated_channels // 2:
            raise InputError(
                f"longrope has {len(self.longrope.short_factor)} factors for "
                f"{self.rotated_channels // 2} pairs of rotated channels"
            )

    def _check_pattern(self) -> None:
        """Raise InputError for a pattern beside settings of all layers, or beside dense layers."""
        if not self.layers:
            return
        if self.sliding_window is not None:
            raise InputError("sliding_window is of all layers; give that of each in layers")
        if len(self.layers) > self.n_layers:
            raise InputError(f"layers has {len(self.layers)} places for n_layers={self.n_layers}")
        if self.moe and (self.moe.first_dense_layers or self.n_layers % len(self.layers)):
            raise InputError(
                f"a mixture of experts has whole patterns of {len(self.layers)} layers and no "
                f"first_dense_layers, not n_layers={self.n_layers} with "
                f"first_dense_layers={self.moe.first_dense_layers}"
            )


GATED = ("swiglu", "geglu", "clamped_swiglu")


def layer_configs(config: ModelConfig) -> tuple[ModelConfig, ...]:
    """The model as the layers at each place of its pattern see it; itself where all are alike."""
    return tuple(_at_place(config, kind) for kind in config.layers) or (config,)


def _at_place(config: ModelConfig, kind: LayerKind) -> ModelConfig:
    plain: dict[str, Any] = {"rope_scaling": None, "yarn": None, "longrope": None, "rope_factor": 1}
    return replace(
        config,
        layers=(),
        sliding_window=kind.sliding_window,
        rope_theta=kind.rope_theta or config.rope_theta,
        **({} if kind.is_stretched else plain),
    )


def with_positions(config: ModelConfig, seq_len: int) -> ModelConfig:
    """`config` with a learned position table of `seq_len` rows where none is given.

    Raises:
        InputError: the sequence is longer than the learned table.
    """
    if config.positions != "learned":
        return config
    if not config.max_positions:
        return replace(config, max_positions=seq_len)
    if seq_len > config.max_positions:
        raise InputError(
            f"seq_len={seq_len} is beyond the model's {config.max_positions} learned positions; "
            f"use seq_len <= {config.max_positions} or raise max_positions"
        )
    return config
