"""The shapes and options of a decoder-only transformer, as plain data (no jax)."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from scaling.meshes.errors import InputError, check_fields, check_positive
from scaling.models.moe.config import LARGEST_SIZE, Moe
from scaling.models.rope import LongRope, RopeScaling, Yarn


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


@dataclass(frozen=True)
class LayerKind:
    """Settings of the layers at one place of a pattern, which other layers need not have."""

    sliding_window: int | None = None  # tokens each position sees, itself included; None: all
    rope_theta: float = 0.0  # 0: the model's
    is_stretched: bool = True  # by the model's rope_scaling, yarn, longrope or rope_factor
    attention_chunk: int | None = None  # tokens of the chunks that positions see alone; None: all
    is_rotated: bool = True  # False: no rotary positions (NoPE)

    def __post_init__(self) -> None:
        check_fields(self, ("sliding_window", "attention_chunk"), 1)
        check_fields(self, ("rope_theta",), 0)


LARGEST_VOCABULARY = 2**31 - 1  # token ids are int32


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
    attention_chunk: int | None = None  # tokens of the chunks that positions see alone (Llama 4)
    unit_heads: bool = False  # rotated heads of q and k are divided by their RMS (Llama 4)
    # t: where nothing rotates, q at position p times 1 + t log(1 + floor((p + 1) / t_floor))
    # (arXiv 2501.19399, Llama 4).
    temperature: float = 0.0
    temperature_floor: int = 8192
    # Granite's (arXiv 2404.07965, muP): embedded tokens, and what attention and MLP add to the
    # stream, are multiplied, logits divided.
    embedding_factor: float = 1.0
    residual_factor: float = 1.0
    logit_divisor: float = 1.0

    @property
    def is_gated(self) -> bool:
        """True for an MLP whose hidden units are products of two."""
        return self.mlp in GATED

    @property
    def has_post_norms(self) -> bool:
        """True where a norm follows attention and MLP."""
        return self.norms != "before"

    @property
    def pattern_length(self) -> int:
        """Layers after which attention, experts and MLP come again in the same order."""
        return math.lcm(len(self.layers) or 1, self.moe.every if self.moe else 1)

    @property
    def embedding_scaled_by(self) -> float:
        """Return the factor by which embedded tokens are multiplied."""
        return self.embedding_factor * (self.d_model**0.5 if self.embedding_scale else 1.0)

    @property
    def norms_heads(self) -> bool:
        """True where something norms queries and keys."""
        return self.qk_norm or self.unit_heads and self.positions == "rope"

    @property
    def rotated_channels(self) -> int:
        """Channels of a head that rotary positions rotate: the first, or latent attention's own."""
        return self.mla.qk_rope_head_dim if self.mla else int(self.head_dim * self.rotated)

    def __post_init__(self) -> None:
        check_fields(self, ("vocab_size",), 1, LARGEST_VOCABULARY)
        check_fields(self, ("rope_theta", "sliding_window", "rope_factor", "attention_chunk"), 1)
        check_fields(self, ("temperature_floor",), 1)
        check_fields(self, ("score_dim", "score_softcap", "logit_softcap", "temperature"), 0)
        check_positive(self, ("embedding_factor", "residual_factor", "logit_divisor"))
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
        no_latent = {"rotated": 1, "score_dim": 0, "qk_norm_over": "head", "unit_heads": False}
        no_latent |= {"temperature": 0}
        if self.mla and any(getattr(self, name) != value for name, value in no_latent.items()):
            raise InputError(f"latent attention has no {', '.join(no_latent)}")
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
        if self.layers and (self.sliding_window or self.attention_chunk):
            raise InputError(
                "sliding_window and attention_chunk are of all layers; give those of each in layers"
            )
        if len(self.layers) > self.n_layers:
            raise InputError(f"layers has {len(self.layers)} places for n_layers={self.n_layers}")
        dense = self.moe.first_dense_layers if self.moe and self.layers else 0
        if self.moe and (dense or self.n_layers % self.pattern_length):
            raise InputError(
                f"a mixture of experts has whole patterns of {self.pattern_length} layers and no "
                f"first_dense_layers, not n_layers={self.n_layers} with first_dense_layers={dense}"
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
        attention_chunk=kind.attention_chunk,
        positions=config.positions if kind.is_rotated else "none",
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
