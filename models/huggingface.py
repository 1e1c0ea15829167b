"""A Hugging Face `config.json` as a ModelConfig, or an error that names what does not fit.

Key names, defaults and meanings: huggingface/transformers, models/*/configuration_*.py. A key is
either translated, has one value that a ModelConfig says as well, or changes neither shapes nor
results; everything else is refused, so that no setting is dropped silently.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshes.errors import InputError, nearest
from meshes.reading import read
from models.config import ModelConfig

Json = Mapping[str, Any]

# Storage, tokenizer, generation, initialisation and training settings: no part of the function.
HARMLESS = frozenset(
    """_name_or_path architectures attention_dropout attn_pdrop auto_map bos_token_id
    decoder_start_token_id dtype embd_pdrop eos_token_id ep_size id2label initializer_range
    label2id max_position_embeddings model_type n_ctx output_attentions output_hidden_states
    output_router_logits pad_token_id pretraining_tp quantization_config resid_pdrop return_dict
    rope_interleave router_aux_loss_coef aux_loss_alpha seq_aux sep_token_id summary_activation
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    task_specific_params tokenizer_class torch_dtype transformers_version unk_token_id
    use_cache""".split()
)
ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
WINDOW_KEYS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")

SHAPES = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "d_ff": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "tied_embeddings": "tie_word_embeddings",
}
GPT2_SHAPES = {
    "vocab_size": "vocab_size",
    "d_model": "n_embd",
    "n_layers": "n_layer",
    "n_heads": "n_head",
    "d_ff": "n_inner",
    "max_positions": "n_positions",
    "norm_eps": "layer_norm_epsilon",
    "tied_embeddings": "tie_word_embeddings",
}


@dataclass(frozen=True)
class Family:
    """How one model_type says what a ModelConfig says."""

    shapes: Json = field(default_factory=lambda: SHAPES)  # field -> key
    constants: Json = field(default_factory=dict)  # fields that the architecture fixes
    defaults: Json = field(default_factory=dict)  # fields whose key may be absent
    only: Json = field(default_factory=dict)  # key -> the values that a ModelConfig implies
    moe: Json = field(default_factory=dict)  # field of Moe -> key
    mla: tuple[str, ...] = ()  # keys that are also fields of Mla
    bias_keys: tuple[str, ...] = ()  # must agree: a ModelConfig has biases everywhere or nowhere
    sliding_window: int | None = None  # where the key is absent
    rope: bool = True

    @property
    def keys(self) -> set[str]:
        """Every key that is read."""
        special = (*self.bias_keys, *self.mla, *WINDOW_KEYS, *(ROPE_KEYS if self.rope else ()))
        return {*self.shapes.values(), *self.only, *self.moe.values(), *special}


SILU = {"hidden_act": ("silu",)}
ROTARY = {"norm_eps": 1e-6, "tied_embeddings": False, "head_dim": 0, "rope_theta": 10_000.0}
LLAMA = Family(
    defaults=ROTARY | {"n_kv_heads": 0}, only=SILU, bias_keys=("attention_bias", "mlp_bias")
)
QWEN3 = Family(
    constants={"qk_norm": True},
    defaults=ROTARY | {"head_dim": 128},
    only=SILU | {"attention_bias": (False,)},
)
FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        shapes=GPT2_SHAPES,
        constants={"mlp": "gelu", "norm": "layernorm", "positions": "learned", "bias": True},
        defaults={"norm_eps": 1e-5, "tied_embeddings": True, "d_ff": 0},
        only={
            "activation_function": ("gelu_new", "gelu_pytorch_tanh"),  # the tanh form
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "reorder_and_upcast_attn": (False,),
            "add_cross_attention": (False,),
        },
        rope=False,
    ),
    "llama": LLAMA,
    "mistral": Family(defaults=ROTARY, only=SILU, sliding_window=4096),
    "mixtral": Family(
        defaults=ROTARY | {"norm_eps": 1e-5, "rope_theta": 1e6},
        only=SILU | {"router_jitter_noise": (0, 0.0)},
        moe={"n_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"},
    ),
    "qwen3": QWEN3,
    "qwen3_moe": Family(
        constants=QWEN3.constants,
        defaults=QWEN3.defaults,
        only=QWEN3.only
        | {"norm_topk_prob": (True,), "decoder_sparse_step": (1,), "mlp_only_layers": ([],)},
        moe={
            "n_experts": "num_experts",
            "experts_per_token": "num_experts_per_tok",
            "d_ff_expert": "moe_intermediate_size",
        },
    ),
    "deepseek_v3": Family(
        shapes={k: v for k, v in SHAPES.items() if k not in ("n_kv_heads", "head_dim")},
        defaults=ROTARY,
        only=SILU
        | {
            "attention_bias": (False,),
            "moe_layer_freq": (1,),
            "n_group": (1,),
            "topk_group": (1,),
            "norm_topk_prob": (True,),
            "num_nextn_predict_layers": (0,),
            "scoring_func": ("sigmoid",),
            "topk_method": ("noaux_tc",),
        },
    ),
}
