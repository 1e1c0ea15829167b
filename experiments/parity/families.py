"""Small random configurations of each family, as transformers writes them."""

from collections.abc import Callable
from typing import Any

import numpy as np

VOCABULARY, LONGEST = 40, 32
Config = dict[str, Any]


def _rotary(draw: np.random.Generator) -> Config:
    """The settings that all families with rotary positions have."""
    kv_heads = int(draw.choice([1, 2]))
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": int(draw.choice([16, 24])),
        "intermediate_size": int(draw.choice([24, 32])),
        "num_hidden_layers": 2,
        "num_attention_heads": kv_heads * int(draw.choice([2, 4])),
        "num_key_value_heads": kv_heads,
        "head_dim": int(draw.choice([4, 8])),
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": float(draw.choice([1e-6, 1e-4])),
        "tie_word_embeddings": bool(draw.integers(2)),
    }


def gpt2(draw: np.random.Generator) -> Config:
    """Learned positions, LayerNorm, biases, tanh GELU."""
    heads = int(draw.choice([2, 4]))
    return {
        "vocab_size": VOCABULARY,
        "n_embd": 8 * heads,
        "n_layer": 2,
        "n_head": heads,
        "n_positions": LONGEST,
        "n_inner": int(draw.choice([24, 40])),
    }


def llama(draw: np.random.Generator) -> Config:
    """Grouped queries, Llama 3.1's stretched wavelengths."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    biases = bool(draw.integers(2))
    return _rotary(draw) | {
        "rope_parameters": scaling,
        "attention_bias": biases,
        "mlp_bias": biases,
    }


def qwen3(draw: np.random.Generator) -> Config:
    """Normalised queries and keys, a sliding window on every layer, YaRN."""
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 2.0,
        "original_max_position_embeddings": 16,
    }
    window = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}
    return _rotary(draw) | window | {"rope_parameters": yarn}


def mistral(draw: np.random.Generator) -> Config:
    """A sliding window on every layer; heads of d_model / n_heads where none are given."""
    rotary = _rotary(draw) | {"sliding_window": [None, 7][int(draw.integers(2))]}
    if draw.integers(2) and rotary["hidden_size"] % (2 * rotary["num_attention_heads"]) == 0:
        del rotary["head_dim"]
    return rotary


def qwen2(draw: np.random.Generator) -> Config:
    """Biases of q, k and v; heads of d_model / n_heads."""
    return _plain_heads(draw) | {
        "use_sliding_window": bool(draw.integers(2)),
        "sliding_window": 7,
        "max_window_layers": 0,
    }


def mixtral(draw: np.random.Generator) -> Config:
    """Two of several experts, softmax over the chosen."""
    return _rotary(draw) | {
        "num_local_experts": int(draw.choice([4, 6])),
        "num_experts_per_tok": 2,
        "sliding_window": None,
    }


def qwen3_moe(draw: np.random.Generator) -> Config:
    """Experts narrower than the MLP, weights normalised or not."""
    return _rotary(draw) | {
        "num_experts": int(draw.choice([4, 6])),
        "num_experts_per_tok": int(draw.choice([2, 3])),
        "moe_intermediate_size": int(draw.choice([8, 16])),
        "norm_topk_prob": bool(draw.integers(2)),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def deepseek_v3(draw: np.random.Generator) -> Config:
    """Latent attention, groups of experts chosen by biased sigmoids, shared experts, YaRN."""
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "mscale": 1.0,
        "mscale_all_dim": float(draw.choice([0.7, 1.0])),
        "original_max_position_embeddings": 16,
    }
    heads = int(draw.choice([2, 4]))
    rotary = _rotary(draw)
    del rotary["head_dim"]
    return rotary | {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": [None, 12, 16][int(draw.integers(3))],
        "kv_lora_rank": int(draw.choice([8, 16])),
        "qk_nope_head_dim": int(draw.choice([8, 12])),
        "qk_rope_head_dim": int(draw.choice([4, 8])),
        "v_head_dim": int(draw.choice([6, 12])),
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": int(draw.choice([1, 2])),
        "moe_intermediate_size": int(draw.choice([12, 16])),
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 0,
        "rope_interleave": bool(draw.integers(2)),
        "rope_parameters": yarn,
    }


def _alternating(draw: np.random.Generator, every: int) -> Config:
    """Windows but on every so many-th layer; perhaps a layer more than whole patterns."""
    layers = every * int(draw.choice([1, 2])) + int(draw.integers(2))
    kinds = [
        "full_attention" if i % every == 0 else "sliding_attention" for i in range(1, layers + 1)
    ]
    return {"num_hidden_layers": layers, "layer_types": kinds, "sliding_window": 7}


def gemma2(draw: np.random.Generator) -> Config:
    """Windows on every other layer, capped scores and logits, norms before and after."""
    return (
        _rotary(draw)
        | _alternating(draw, 2)
        | {
            "query_pre_attn_scalar": int(draw.choice([8, 12])),
            "attn_logit_softcapping": float(draw.choice([2.0, 5.0])),
            "final_logit_softcapping": [None, 4.0][int(draw.integers(2))],
            "tie_word_embeddings": True,
        }
    )


def gemma3_text(draw: np.random.Generator) -> Config:
    """Two rotations, of layers with windows and without, the latter stretched; normalised heads."""
    stretched = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5}
    full = [{"rope_type": "default", "rope_theta": 1e5}, stretched][int(draw.integers(2))]
    local = {"rope_type": "default", "rope_theta": 1e3}
    return (
        _rotary(draw)
        | _alternating(draw, 3)
        | {
            "query_pre_attn_scalar": int(draw.choice([8, 12])),
            "rope_parameters": {"full_attention": full, "sliding_attention": local},
            "tie_word_embeddings": True,
        }
    )


def gpt_oss(draw: np.random.Generator) -> Config:
    """Sinks, windows on every other layer, biased experts with clamped gates, YaRN."""
    yarn = {
        **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "truncate": False},
        "original_max_position_embeddings": 16,
    }
    alternating = _alternating(draw, 2)
    layers = 2 * (alternating["num_hidden_layers"] // 2)  # whole patterns
    alternating |= {"num_hidden_layers": layers, "layer_types": alternating["layer_types"][:layers]}
    return (
        _rotary(draw)
        | alternating
        | {
            "num_local_experts": int(draw.choice([4, 6])),
            "num_experts_per_tok": int(draw.choice([2, 3])),
            "rope_parameters": yarn,
        }
    )


def deepseek_v2(draw: np.random.Generator) -> Config:
    """Latent attention, softmax over all experts, the best groups first or not, shared experts."""
    third = deepseek_v3(draw)
    for key in ("num_nextn_predict_layers", "rope_interleave"):
        del third[key]
    return third | {
        "topk_method": ["greedy", "group_limited_greedy"][int(draw.integers(2))],
        "routed_scaling_factor": float(draw.choice([1.0, 4.0])),
        "norm_topk_prob": False,
        "hidden_size": 32,
    }


def olmo2(draw: np.random.Generator) -> Config:
    """Norms after attention and MLP, and of whole projections of queries and keys."""
    return _plain_heads(draw)


def olmo3(draw: np.random.Generator) -> Config:
    """OLMo 2 with windows on three of four layers, YaRN on the others."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    default: Config = {"rope_type": "default"}
    full = {"rope_theta": 1e4} | [default, yarn][int(draw.integers(2))]
    local = {"rope_type": "default", "rope_theta": 1e4}
    rope = {"rope_parameters": {"full_attention": full, "sliding_attention": local}}
    return _plain_heads(draw) | _alternating(draw, 4) | rope


def phi3(draw: np.random.Generator) -> Config:
    """Joined matrices, part of the channels rotated, LongRoPE, perhaps a window."""
    share = float(draw.choice([0.5, 1.0]))
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
    pairs = int(8 * share) // 2
    original = int(draw.choice([LONGEST // 2, LONGEST]))  # its long factors, or its short ones
    long = {
        "rope_type": "longrope",
        "short_factor": draw.uniform(1, 2, pairs).tolist(),
        "long_factor": draw.uniform(2, 8, pairs).tolist(),
    }
    rope = [{"rope_type": "default"}, long][int(draw.integers(2))]
    rope = rope | {"rope_theta": 1e4, "partial_rotary_factor": share}
    positions = {"original_max_position_embeddings": original, "max_position_embeddings": 64}
    window = {"sliding_window": [None, 7][int(draw.integers(2))], "pad_token_id": None}
    rotary = _rotary(draw)
    del rotary["head_dim"]
    return rotary | heads | positions | window | {"rope_parameters": rope}


def llama4_text(draw: np.random.Generator) -> Config:
    """Chunks and unit heads where there are rotary positions, tempered queries where none are;
    experts in all layers or every other one, whose inputs are weighed."""
    layers, every = 4, int(draw.choice([1, 2]))
    return _rotary(draw) | {
        "num_hidden_layers": layers,
        "intermediate_size_mlp": 40,
        "num_local_experts": int(draw.choice([4, 6])),
        "num_experts_per_tok": int(draw.choice([1, 2])),
        "interleave_moe_layer_step": every,
        "pad_token_id": None,
        "no_rope_layers": [[1, 1, 1, 0], [1, 0, 1, 0]][int(draw.integers(2))],
        "attention_chunk_size": [None, 8, 12][int(draw.integers(3))],
        "use_qk_norm": bool(draw.integers(2)),
        "attn_temperature_tuning": bool(draw.integers(4)),
        "floor_scale": 6,
        "attn_scale": 0.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }


def granite(draw: np.random.Generator) -> Config:
    """Multipliers of embedded tokens, scores, results of blocks and logits."""
    return _plain_heads(draw) | {
        "embedding_multiplier": float(draw.choice([2.0, 12.0])),
        "attention_multiplier": float(draw.choice([0.25, 1 / 3])),
        "residual_multiplier": float(draw.choice([0.22, 0.5])),
        "logits_scaling": float(draw.choice([0.5, 3.0])),
    }


def granitemoe(draw: np.random.Generator) -> Config:
    """Granite's multipliers, and experts in every layer."""
    experts = {"num_local_experts": int(draw.choice([4, 6])), "num_experts_per_tok": 2}
    return granite(draw) | experts


def smollm3(draw: np.random.Generator) -> Config:
    """Some layers without rotation, which have a window or not."""
    biases = bool(draw.integers(2))
    return _plain_heads(draw) | {
        "num_hidden_layers": int(draw.choice([4, 5])),
        "pad_token_id": None,
        "no_rope_layers": [[1, 1, 1, 0, 1], [1, 0, 1, 0, 1], None][int(draw.integers(3))],
        "use_sliding_window": bool(draw.integers(2)),
        "sliding_window": 7,
        "attention_bias": biases,
        "mlp_bias": biases,
    }


def glm(draw: np.random.Generator) -> Config:
    """The first half of the channels rotated in neighbouring pairs, biases of q, k, v or none."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    biases = {"attention_bias": bool(draw.integers(2)), "pad_token_id": None}
    return _rotary(draw) | biases | {"rope_parameters": rope}


def glm4_moe(draw: np.random.Generator) -> Config:
    """Experts as DeepSeek-V3's behind some dense layers, normalised heads or not."""
    return glm(draw) | {
        "use_qk_norm": bool(draw.integers(2)),
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": int(draw.choice([1, 2])),
        "moe_intermediate_size": int(draw.choice([12, 16])),
        "first_k_dense_replace": int(draw.choice([0, 1])),
        "norm_topk_prob": bool(draw.integers(2)),
        "routed_scaling_factor": 2.5,
        "num_mtp_layers": 0,
    }


def gemma(draw: np.random.Generator) -> Config:
    """Gated tanh GELU, norms of one more than their scale, tied tables."""
    return _rotary(draw) | {"tie_word_embeddings": True}


def olmoe(draw: np.random.Generator) -> Config:
    """Norms of whole projections of queries and keys, experts in every layer."""
    return _plain_heads(draw) | {
        "num_experts": int(draw.choice([4, 6])),
        "num_experts_per_tok": int(draw.choice([2, 3])),
        "norm_topk_prob": bool(draw.integers(2)),
    }


def exaone4(draw: np.random.Generator) -> Config:
    """Normalised heads, norms after blocks; windows, beside which other layers have no rotation."""
    window = {} if draw.integers(3) else {"sliding_window": None, "layer_types": None}
    return _plain_heads(draw) | _alternating(draw, 4) | window


def seed_oss(draw: np.random.Generator) -> Config:
    """Biases of q, k and v or none, heads of any length."""
    return _rotary(draw) | {"attention_bias": bool(draw.integers(2))}


def starcoder2(draw: np.random.Generator) -> Config:
    """LayerNorm, biases and tanh GELU as GPT-2 has them, with rotary positions."""
    rotary = _plain_heads(draw) | {"sliding_window": [None, 7][int(draw.integers(2))]}
    return rotary | {"norm_epsilon": rotary.pop("rms_norm_eps")}


def _plain_heads(draw: np.random.Generator) -> Config:
    """Heads of d_model / n_heads."""
    rotary = _rotary(draw) | {"num_attention_heads": 4, "num_key_value_heads": 2}
    del rotary["head_dim"]
    return rotary


FAMILIES: dict[str, Callable[[np.random.Generator], Config]] = {
    "gpt2": gpt2,
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "mixtral": mixtral,
    "qwen3_moe": qwen3_moe,
    "deepseek_v3": deepseek_v3,
    "gemma2": gemma2,
    "gemma3_text": gemma3_text,
    "gpt_oss": gpt_oss,
    "deepseek_v2": deepseek_v2,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "phi3": phi3,
    "llama4_text": llama4_text,
    "gemma": gemma,
    "granite": granite,
    "granitemoe": granitemoe,
    "smollm3": smollm3,
    "glm": glm,
    "glm4": glm,
    "glm4_moe": glm4_moe,
    "olmoe": olmoe,
    "exaone4": exaone4,
    "seed_oss": seed_oss,
    "starcoder2": starcoder2,
}
