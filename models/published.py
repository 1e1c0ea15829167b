"""The shapes of published models, family by family, each with its source.

Vocabularies are the tokenizer's own unless the source pads them; a context that was stretched
after pre-training is only stretched here where the family's first release says so.
"""

from dataclasses import replace
from functools import partial

from scaling.models.config import Mla, ModelConfig, Moe, RopeScaling

GPT2_VOCABULARY = 50_257  # Radford et al. 2019: 256 bytes + 50,000 merges + end of text


def _gpt(
    n_layers: int,
    d_model: int,
    n_heads: int,
    *,
    vocab_size: int = GPT2_VOCABULARY,
    max_positions: int = 2048,
    tied_embeddings: bool = True,
) -> ModelConfig:
    """GPT-2's architecture: learned positions, LayerNorm, tanh GELU of 4 x d_model, biases."""
    return ModelConfig(
        vocab_size,
        d_model,
        n_layers,
        n_heads,
        d_ff=4 * d_model,
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=max_positions,
        tied_embeddings=tied_embeddings,
        bias=True,
    )


def _llama(
    n_layers: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_ff: int,
    *,
    vocab_size: int = 128_256,
    rope_theta: float = 500_000.0,
    stretch: float | None = 8.0,
    tied_embeddings: bool = False,
) -> ModelConfig:
    """Llama's architecture. `stretch`: factor of Llama 3.1's rotary scaling, from 8,192 tokens."""
    scaling = RopeScaling(stretch, 1.0, 4.0, 8192) if stretch else None
    return ModelConfig(
        vocab_size,
        d_model,
        n_layers,
        n_heads,
        d_ff,
        n_kv_heads,
        rope_theta=rope_theta,
        rope_scaling=scaling,
        tied_embeddings=tied_embeddings,
    )


def _qwen2(
    n_layers: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_ff: int,
    vocab_size: int = 152_064,
    tied_embeddings: bool = False,
) -> ModelConfig:
    """Qwen2 and Qwen2.5 (arXiv 2412.15115): biases on the projections of q, k and v only."""
    return ModelConfig(
        vocab_size,
        d_model,
        n_layers,
        n_heads,
        d_ff,
        n_kv_heads,
        norm_eps=1e-6,
        rope_theta=1_000_000.0,
        tied_embeddings=tied_embeddings,
        qkv_bias=True,
    )


def _qwen3(
    n_layers: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_ff: int,
    *,
    tied_embeddings: bool = False,
    moe: Moe | None = None,
) -> ModelConfig:
    """Qwen3 (arXiv 2505.09388): heads of 128 whatever d_model, normalised queries and keys."""
    return ModelConfig(
        151_936,
        d_model,
        n_layers,
        n_heads,
        d_ff,
        n_kv_heads,
        head_dim=128,
        norm_eps=1e-6,
        rope_theta=1_000_000.0,
        tied_embeddings=tied_embeddings,
        qk_norm=True,
        moe=moe,
    )


def _gpt2() -> dict[str, ModelConfig]:
    """Radford et al. 2019, table 2; heads from openai/gpt-2's hparams.json (d_model / 64)."""
    sizes = {
        "gpt2-124m": (12, 768, 12),
        "gpt2-355m": (24, 1024, 16),
        "gpt2-774m": (36, 1280, 20),
        "gpt2-1.5b": (48, 1600, 25),
    }
    return {name: _gpt(*size, max_positions=1024) for name, size in sizes.items()}


def _gpt3() -> dict[str, ModelConfig]:
    """Brown et al. 2020 (arXiv 2005.14165), table 2.1; all layers with dense attention.

    Two entries of that table contradict their own size and are read as the size demands: 1.3b
    with 16 heads of 128 (printed: 24), 13b with d_model 5,120 = 40 x 128 (printed: 5,140).
    """
    sizes = {
        "gpt3-125m": (12, 768, 12),
        "gpt3-350m": (24, 1024, 16),
        "gpt3-760m": (24, 1536, 16),
        "gpt3-1.3b": (24, 2048, 16),
        "gpt3-2.7b": (32, 2560, 32),
        "gpt3-6.7b": (32, 4096, 32),
        "gpt3-13b": (40, 5120, 40),
        "gpt3-175b": (96, 12288, 96),
    }
    return {name: _gpt(*size) for name, size in sizes.items()}


def _megatron() -> dict[str, ModelConfig]:
    """Narayanan et al. 2021 (arXiv 2104.04473), table 1; 22b and 175b: Korthikanti et al. 2022
    (arXiv 2205.05198), table 3. The vocabulary is padded to 51,200 in both papers."""
    sizes = {
        "megatron-1.7b": (24, 2304, 24),
        "megatron-3.6b": (30, 3072, 32),
        "megatron-7.5b": (36, 4096, 32),
        "megatron-18b": (40, 6144, 48),
        "megatron-22b": (48, 6144, 64),
        "megatron-39b": (48, 8192, 64),
        "megatron-76b": (60, 10240, 80),
        "megatron-145b": (80, 12288, 96),
        "megatron-175b": (96, 12288, 96),
        "megatron-310b": (96, 16384, 128),
        "megatron-530b": (105, 20480, 128),
        "megatron-1t": (128, 25600, 160),
    }
    return {name: _gpt(*size, vocab_size=51_200) for name, size in sizes.items()}


def _mpt() -> dict[str, ModelConfig]:
    """mosaicml/llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml; its erf GELU costs as tanh."""
    sizes = {
        "mpt-125m": (12, 768, 12),
        "mpt-350m": (24, 1024, 16),
        "mpt-760m": (24, 1536, 12),
        "mpt-1b": (24, 2048, 16),
        "mpt-3b": (32, 2560, 20),
        "mpt-7b": (32, 4096, 32),
        "mpt-13b": (40, 5120, 40),
        "mpt-30b": (48, 7168, 56),
        "mpt-70b": (80, 8192, 64),
    }
    return {name: _gpt(*size, vocab_size=50_368) for name, size in sizes.items()}


def _gpt_305m() -> dict[str, ModelConfig]:
    """The GPT of a ten-RTX-3090 scaling report: hidden 1024, 16 layers, 16 heads, sequence 512.

    Its "305M" holds for GPT-2's vocabulary with an output head of its own (304,992,256).
    """
    return {"gpt-305m": _gpt(16, 1024, 16, max_positions=512, tied_embeddings=False)}


def _llamas() -> dict[str, ModelConfig]:
    """Touvron et al. 2023 (arXiv 2307.09288), Zhang et al. 2024 (2401.02385) and Llama 3
    (2407.21783, table 3, in the form of release 3.1; 1b and 3b are release 3.2), with the
    config.json of each release on Hugging Face for what the papers leave out."""
    llama2 = partial(_llama, vocab_size=32_000, rope_theta=10_000.0, stretch=None)
    small = partial(_llama, stretch=32.0, tied_embeddings=True)
    return {
        "tinyllama-1.1b": llama2(22, 2048, 32, 4, 5632),
        "llama2-7b": llama2(32, 4096, 32, 32, 11008),
        "llama2-13b": llama2(40, 5120, 40, 40, 13824),
        "llama2-70b": llama2(80, 8192, 64, 8, 28672),
        "llama3-1b": small(16, 2048, 32, 8, 8192),
        "llama3-3b": small(28, 3072, 24, 8, 8192),
        "llama3-8b": _llama(32, 4096, 32, 8, 14336),
        "llama3-70b": _llama(80, 8192, 64, 8, 28672),
        "llama3-405b": _llama(126, 16384, 128, 8, 53248),
    }


def _qwens() -> dict[str, ModelConfig]:
    """Technical reports of Qwen2.5 (arXiv 2412.15115, table 1) and Qwen3 (2505.09388, tables 1 and
    2), and each model's config.json."""
    experts = partial(Moe, 128, 8, aux_loss=0.001)
    return {
        "qwen2.5-0.5b": _qwen2(24, 896, 14, 2, 4864, 151_936, tied_embeddings=True),
        "qwen2.5-7b": _qwen2(28, 3584, 28, 4, 18944),
        "qwen2.5-72b": _qwen2(80, 8192, 64, 8, 29568),
        "qwen3-0.6b": _qwen3(28, 1024, 16, 8, 3072, tied_embeddings=True),
        "qwen3-1.7b": _qwen3(28, 2048, 16, 8, 6144, tied_embeddings=True),
        "qwen3-4b": _qwen3(36, 2560, 32, 8, 9728, tied_embeddings=True),
        "qwen3-8b": _qwen3(36, 4096, 32, 8, 12288),
        "qwen3-14b": _qwen3(40, 5120, 40, 8, 17408),
        "qwen3-32b": _qwen3(64, 5120, 64, 8, 25600),
        "qwen3-30b-a3b": _qwen3(48, 2048, 32, 4, 6144, moe=experts(d_ff_expert=768)),
        "qwen3-235b-a22b": _qwen3(94, 4096, 64, 4, 12288, moe=experts(d_ff_expert=1536)),
    }


def _mistrals() -> dict[str, ModelConfig]:
    """Jiang et al. 2023 (arXiv 2310.06825), table 1; Jiang et al. 2024 (2401.04088), table 1; the
    weight of the balancing loss is of the release's config.json."""
    shape = ModelConfig(32_000, 4096, 32, 32, 14336, n_kv_heads=8)
    return {
        "mistral-7b": replace(shape, sliding_window=4096),
        "mixtral-8x7b": replace(shape, rope_theta=1e6, moe=Moe(8, 2, aux_loss=0.02)),
    }


def _deepseek() -> dict[str, ModelConfig]:
    """DeepSeek-V3 (arXiv 2412.19437), section 4.2, and its config.json.

    Without the multi-token-prediction module (not among the 671 B), the YaRN scaling of its later
    context extension, and the balance loss within each sequence. The limit on nodes per token is
    that on groups. `head_dim` is that of the values.
    """
    moe = Moe(
        256,
        8,
        d_ff_expert=2048,
        n_shared_experts=1,
        first_dense_layers=3,
        gate="sigmoid",
        routed_scaling=2.5,
        selection_bias=True,
        bias_update_rate=0.001,
        n_groups=8,
        groups_per_token=4,
    )
    return {
        "deepseek-v3": ModelConfig(
            vocab_size=129_280,
            d_model=7168,
            n_layers=61,
            n_heads=128,
            head_dim=128,
            d_ff=18432,
            norm_eps=1e-6,
            mla=Mla(1536, 512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
            moe=moe,
        )
    }


PUBLISHED: dict[str, ModelConfig] = (
    _gpt2()
    | _gpt_305m()
    | _gpt3()
    | _megatron()
    | _mpt()
    | _llamas()
    | _qwens()
    | _mistrals()
    | _deepseek()
)
