"""Tables that map each Hugging Face model_type to a ModelConfig, for `huggingface.read`.

Source of key names, defaults and meanings: huggingface/transformers,
src/transformers/models/*/configuration_*.py (release 5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Table = Mapping[str, Any]

# Settings of storage, tokenizer, generation, initialisation and training: not of the function.
# (rope_interleave orders the stored columns of q and k; dropout belongs to the run.)
HARMLESS = frozenset(
    """_name_or_path architectures attention_dropout attn_pdrop auto_map aux_loss_alpha
    bos_token_id dtype embd_pdrop eos_token_id ep_size id2label initializer_range label2id
    max_position_embeddings model_type n_ctx output_attentions output_hidden_states
    output_router_logits pad_token_id pretraining_tp quantization_config resid_pdrop return_dict
    rope_interleave seq_aux summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj task_specific_params tokenizer_class
    torch_dtype transformers_version unk_token_id use_cache""".split()
)
ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
WINDOW_KEYS = {
    "none": (),
    "always": ("sliding_window", "layer_types"),
    "switched": ("sliding_window", "layer_types", "use_sliding_window", "max_window_layers"),
}


@dataclass(frozen=True)
class Family:
    """The map from the keys of one model_type to a ModelConfig."""

    shapes: Table  # field of ModelConfig -> key
    constants: Table = field(default_factory=dict)  # fields fixed by the architecture
    defaults: Table = field(default_factory=dict)  # fields whose key may be absent or null
    only: Table = field(default_factory=dict)  # key -> the values that a ModelConfig can express
    moe: Table = field(default_factory=dict)  # field of Moe -> key
    moe_constants: dict[str, Any] = field(default_factory=dict)  # as `constants`, of Moe
    moe_defaults: Table = field(default_factory=dict)  # as `defaults`, of Moe
    mla: tuple[str, ...] = ()  # keys that are fields of Mla by the same name
    derived: tuple[str, ...] = ()  # keys that follow from others
    aliases: Table = field(default_factory=dict)  # another spelling of a key -> the key
    bias_keys: tuple[str, ...] = ()  # must agree: `ModelConfig.bias` is all or nothing
    rope_theta: float | None = 10_000.0  # where the key is absent; None: no rotary positions
    window: Literal["none", "always", "switched"] = "none"
    default_window: int | None = None  # sliding_window where the key is absent
    default_window_layer: int = 0  # max_window_layers where the key is absent

    @property
    def keys(self) -> set[str]:
        """Every key that is read."""
        rope = ROPE_KEYS if self.rope_theta else ()
        special = (*self.bias_keys, *self.mla, *self.derived, *rope, *WINDOW_KEYS[self.window])
        return {*self.shapes.values(), *self.moe.values(), *special}


ANY_FAMILY = {
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1.0,),
    "pruned_heads": ({},),
}
ROTARY_SHAPES = {
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
ROTARY_DEFAULTS = {"norm_eps": 1e-6, "tied_embeddings": False, "head_dim": 0}
SILU = {"hidden_act": ("silu",)}
MIXTRAL_EXPERTS = {
    "n_experts": "num_local_experts",
    "experts_per_token": "num_experts_per_tok",
    "aux_loss": "router_aux_loss_coef",
}
AUX_LOSS = {"aux_loss": 0.001}  # where the key is absent, of Mixtral and Qwen3-MoE alike
# DeepSeek-V3, arXiv 2412.19437, section 4.2: speed of the bias in the first 14.3 T tokens. Its
# balance loss within each sequence (weight 0.0001, aux_loss_alpha) is not among ours.
DEEPSEEK_CHOICE = {"gate": "sigmoid", "selection_bias": True, "bias_update_rate": 0.001}
DEEPSEEK_DEFAULTS = {
    "normalize_weights": True,
    "routed_scaling": 2.5,
    "n_groups": 8,
    "groups_per_token": 4,
}

GPT2 = Family(
    shapes={
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "n_inner",
        "max_positions": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "tied_embeddings": "tie_word_embeddings",
    },
    constants={"mlp": "gelu", "norm": "layernorm", "positions": "learned", "bias": True},
    defaults={"norm_eps": 1e-5, "tied_embeddings": True, "d_ff": None},  # None: 4 x d_model
    only={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),  # "gelu" is the erf form
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": (False,),
    },
    rope_theta=None,
)
QWEN3 = Family(
    shapes=ROTARY_SHAPES,
    constants={"qk_norm": True},
    defaults=ROTARY_DEFAULTS | {"head_dim": 128},
    only=SILU | {"attention_bias": (False,)},
    window="switched",
    default_window=4096,
    default_window_layer=28,
)
FAMILIES: dict[str, Family] = {
    "gpt2": GPT2,
    "llama": Family(
        shapes=ROTARY_SHAPES,
        defaults=ROTARY_DEFAULTS | {"n_kv_heads": 0},
        only=SILU,
        bias_keys=("attention_bias", "mlp_bias"),
    ),
    "mistral": Family(
        shapes=ROTARY_SHAPES,
        defaults=ROTARY_DEFAULTS,
        only=SILU,
        window="always",
        default_window=4096,
    ),
    "mixtral": Family(
        shapes=ROTARY_SHAPES,
        defaults=ROTARY_DEFAULTS | {"norm_eps": 1e-5},
        only=SILU | {"router_jitter_noise": (0.0,)},
        moe=MIXTRAL_EXPERTS,
        moe_defaults=AUX_LOSS,
        rope_theta=1_000_000.0,
        window="always",
    ),
    "qwen2": Family(  # and Qwen2.5: biases of q, k and v only
        shapes=ROTARY_SHAPES,
        constants={"qkv_bias": True},
        defaults=ROTARY_DEFAULTS | {"n_kv_heads": 32},
        only=SILU | {"use_mrope": (False,)},
        window="switched",
        default_window=4096,
        default_window_layer=28,
    ),
    "qwen3": QWEN3,
    "qwen3_moe": Family(
        shapes=ROTARY_SHAPES,
        constants=QWEN3.constants,
        defaults=ROTARY_DEFAULTS,
        only={
            **QWEN3.only,
            "decoder_sparse_step": (1,),
            "mlp_only_layers": ([],),
        },
        moe={
            "n_experts": "num_experts",
            "experts_per_token": "num_experts_per_tok",
            "d_ff_expert": "moe_intermediate_size",
            "normalize_weights": "norm_topk_prob",
            "aux_loss": "router_aux_loss_coef",
        },
        moe_defaults=AUX_LOSS | {"normalize_weights": False},
        aliases={"num_local_experts": "num_experts"},  # as release 5 writes it
        window="switched",
        default_window=4096,
    ),
    "deepseek_v3": Family(
        shapes=ROTARY_SHAPES | {"head_dim": "v_head_dim"},
        defaults=ROTARY_DEFAULTS | {"n_kv_heads": 0},
        only=SILU
        | {
            "attention_bias": (False,),
            "moe_layer_freq": (1,),
            "num_nextn_predict_layers": (0,),
            "scoring_func": ("sigmoid",),
            "topk_method": ("noaux_tc",),
        },
        moe={
            "n_experts": "n_routed_experts",
            "experts_per_token": "num_experts_per_tok",
            "d_ff_expert": "moe_intermediate_size",
            "n_shared_experts": "n_shared_experts",
            "first_dense_layers": "first_k_dense_replace",
            "normalize_weights": "norm_topk_prob",
            "routed_scaling": "routed_scaling_factor",
            "n_groups": "n_group",
            "groups_per_token": "topk_group",
        },
        moe_constants=DEEPSEEK_CHOICE,
        moe_defaults=DEEPSEEK_DEFAULTS,
        mla=("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
        derived=("head_dim", "qk_head_dim"),  # of the rotated part, of both parts
    ),
}
