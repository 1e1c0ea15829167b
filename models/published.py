"""The shapes of published models, family by family, each with its source.

Vocabularies are the tokenizer's own unless the source pads them; a context that was stretched
after pre-training is only stretched here where the family's first release says so.
"""

from dataclasses import replace
from functools import partial

from scaling.models.config import Mla, ModelConfig, Moe, RopeScaling

GPT2_VOCABULARY = 50_257  # Radford et al. 2019: 256 bytes + 50,000 merges + end of text


def _gpt(
    n_layers: int, d_model: int, n_heads: int, vocab_size: int, max_positions: int = 2048
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
        tied_embeddings=True,
        bias=True,
    )


def _stretched(factor: float) -> RopeScaling:
    """Llama 3.1's rotary scaling, from 8,192 tokens."""
    return RopeScaling(
        factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=8192
    )


# Radford et al. 2019, table 2; heads from openai/gpt-2's hparams.json (d_model / 64).
GPT2 = {
    "gpt2-124m": (12, 768, 12),
    "gpt2-355m": (24, 1024, 16),
    "gpt2-774m": (36, 1280, 20),
    "gpt2-1.5b": (48, 1600, 25),
}
# The GPT of a ten-RTX-3090 scaling report: hidden 1024, 16 layers, 16 heads, sequence 512. Its
# "305M" holds for GPT-2's vocabulary with an output head of its own (304,992,256).
GPT_305M = replace(_gpt(16, 1024, 16, GPT2_VOCABULARY, 512), tied_embeddings=False)
# Brown et al. 2020 (arXiv 2005.14165), table 2.1; all layers with dense attention. Two entries of
# that table contradict their own size and are read as the size demands: 1.3b with 16 heads of 128
# (printed: 24), 13b with d_model 5,120 = 40 x 128 (printed: 5,140).
GPT3 = {
    "gpt3-125m": (12, 768, 12),
    "gpt3-350m": (24, 1024, 16),
    "gpt3-760m": (24, 1536, 16),
    "gpt3-1.3b": (24, 2048, 16),
    "gpt3-2.7b": (32, 2560, 32),
    "gpt3-6.7b": (32, 4096, 32),
    "gpt3-13b": (40, 5120, 40),
    "gpt3-175b": (96, 12288, 96),
}
# Narayanan et al. 2021 (arXiv 2104.04473), table 1; 22b and 175b: Korthikanti et al. 2022
# (arXiv 2205.05198), table 3. The vocabulary is padded to 51,200 in both papers.
MEGATRON = {
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
# mosaicml/llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml; its erf GELU costs as tanh.
MPT = {
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

# Touvron et al. 2023 (arXiv 2307.09288), Zhang et al. 2024 (2401.02385) and Llama 3 (2407.21783,
# table 3, in the form of release 3.1; 1b and 3b are release 3.2), with the config.json of each
# release on Hugging Face for what the papers leave out.
_llama2 = partial(ModelConfig, 32_000)
_llama3 = partial(ModelConfig, 128_256, rope_theta=500_000.0)
_llama31 = partial(_llama3, rope_scaling=_stretched(8.0))
_llama32 = partial(_llama3, rope_scaling=_stretched(32.0), tied_embeddings=True)
LLAMA = {
    "tinyllama-1.1b": _llama2(2048, 22, 32, 5632, 4),
    "llama2-7b": _llama2(4096, 32, 32, 11008),
    "llama2-13b": _llama2(5120, 40, 40, 13824),
    "llama2-70b": _llama2(8192, 80, 64, 28672, 8),
    "llama3-1b": _llama32(2048, 16, 32, 8192, 8),
    "llama3-3b": _llama32(3072, 28, 24, 8192, 8),
    "llama3-8b": _llama31(4096, 32, 32, 14336, 8),
    "llama3-70b": _llama31(8192, 80, 64, 28672, 8),
    "llama3-405b": _llama31(16384, 126, 128, 53248, 8),
}

# Technical reports of Qwen2.5 (arXiv 2412.15115, table 1: biases on q, k and v only) and Qwen3
# (2505.09388, tables 1 and 2: heads of 128 whatever d_model, normalised queries and keys), and each
# model's config.json.
_qwen = partial(ModelConfig, norm_eps=1e-6, rope_theta=1_000_000.0)
_qwen2 = partial(_qwen, qkv_bias=True)
_qwen3 = partial(_qwen, 151_936, head_dim=128, qk_norm=True)
_experts = partial(Moe, 128, 8, aux_loss=0.001)
QWEN = {
    "qwen2.5-0.5b": _qwen2(151_936, 896, 24, 14, 4864, 2, tied_embeddings=True),
    "qwen2.5-7b": _qwen2(152_064, 3584, 28, 28, 18944, 4),
    "qwen2.5-72b": _qwen2(152_064, 8192, 80, 64, 29568, 8),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 3072, 8, tied_embeddings=True),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 6144, 8, tied_embeddings=True),
    "qwen3-4b": _qwen3(2560, 36, 32, 9728, 8, tied_embeddings=True),
    "qwen3-8b": _qwen3(4096, 36, 32, 12288, 8),
    "qwen3-14b": _qwen3(5120, 40, 40, 17408, 8),
    "qwen3-32b": _qwen3(5120, 64, 64, 25600, 8),
    "qwen3-30b-a3b": _qwen3(2048, 48, 32, 6144, 4, moe=_experts(d_ff_expert=768)),
    "qwen3-235b-a22b": _qwen3(4096, 94, 64, 12288, 4, moe=_experts(d_ff_expert=1536)),
}

# Jiang et al. 2023 (arXiv 2310.06825), table 1; Jiang et al. 2024 (2401.04088), table 1; the weight
# of the balancing loss is of the release's config.json.
_mistral = partial(ModelConfig, 32_000, 4096, 32, 32, 14336, n_kv_heads=8)
MISTRAL = {
    "mistral-7b": _mistral(sliding_window=4096),
    "mixtral-8x7b": _mistral(rope_theta=1e6, moe=Moe(8, 2, aux_loss=0.02)),
}

# DeepSeek-V3 (arXiv 2412.19437), section 4.2, and its config.json. Without the
# multi-token-prediction module (not among the 671 B), the YaRN scaling of its later context
# extension, and the balance loss within each sequence. The limit on nodes per token is that on
# groups. `head_dim` is that of the values.
DEEPSEEK_V3 = ModelConfig(
    vocab_size=129_280,
    d_model=7168,
    n_layers=61,
    n_heads=128,
    head_dim=128,
    d_ff=18432,
    norm_eps=1e-6,
    mla=Mla(1536, 512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
    moe=Moe(
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
    ),
)

PUBLISHED: dict[str, ModelConfig] = {
    **{name: _gpt(*shape, GPT2_VOCABULARY, 1024) for name, shape in GPT2.items()},
    "gpt-305m": GPT_305M,
    **{name: _gpt(*shape, GPT2_VOCABULARY) for name, shape in GPT3.items()},
    **{name: _gpt(*shape, 51_200) for name, shape in MEGATRON.items()},
    **{name: _gpt(*shape, 50_368) for name, shape in MPT.items()},
    **LLAMA,
    **QWEN,
    **MISTRAL,
    "deepseek-v3": DEEPSEEK_V3,
}
