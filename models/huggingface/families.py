"""The families of families.toml: how each Hugging Face model_type maps to a ModelConfig."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from scaling.meshes.reading import merged, package_toml, read

Table = Mapping[str, Any]

# Settings of storage, tokenizer, generation, initialisation and training: not of the function.
# (rope_interleave orders the stored columns of q and k; dropout belongs to the run.)
HARMLESS = frozenset(
    """_name_or_path _sliding_window_pattern architectures attention_dropout attn_pdrop auto_map
    aux_loss_alpha bos_token_id cache_implementation dtype embd_pdrop embedding_dropout
    eos_token_id ep_size id2label initializer_range label2id max_position_embeddings model_type
    n_ctx output_attentions output_hidden_states output_router_logits pad_token_id
    pretraining_tp quantization_config resid_pdrop residual_dropout return_dict rope_interleave
    seq_aux summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj task_specific_params tokenizer_class torch_dtype transformers_version
    unk_token_id use_cache""".split()
)
ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
WINDOW_KEYS = {
    "none": (),
    "always": ("sliding_window", "layer_types"),
    "switched": ("sliding_window", "layer_types", "use_sliding_window", "max_window_layers"),
    "pattern": ("sliding_window", "layer_types", "sliding_window_pattern"),
    "chunks": ("attention_chunk_size", "layer_types", "no_rope_layers", "no_rope_layer_interval"),
    "unrotated": (
        *("sliding_window", "layer_types", "use_sliding_window"),
        *("no_rope_layers", "no_rope_layer_interval"),
    ),
}
MULTIPLIER = "attention_multiplier"  # of scores, in place of 1 / sqrt of their length
LOCAL_THETA = "rope_local_base_freq"  # of layers with a window, in releases before 5


@dataclass(frozen=True)
class Family:
    """The map from the keys of one model_type to a ModelConfig."""

    architecture: str  # the model's class in transformers
    shapes: Table  # field of ModelConfig -> key
    constants: Table = field(default_factory=dict)  # fields fixed by the architecture
    defaults: Table = field(default_factory=dict)  # fields whose key may be absent or null
    absent: Table = field(default_factory=dict)  # key -> its value where it is absent, not null
    only: Table = field(default_factory=dict)  # key -> the values that a ModelConfig can express
    moe: Table = field(default_factory=dict)  # field of Moe -> key
    moe_constants: dict[str, Any] = field(default_factory=dict)  # as `constants`, of Moe
    moe_defaults: Table = field(default_factory=dict)  # as `defaults`, of Moe
    mla: tuple[str, ...] = ()  # keys that are fields of Mla by the same name
    derived: tuple[str, ...] = ()  # keys that follow from others
    aliases: Table = field(default_factory=dict)  # another spelling of a key -> the key
    bias_keys: tuple[str, ...] = ()  # must agree: `ModelConfig.bias` is all or nothing
    rope_theta: float = 10_000.0  # where the key is absent; 0: no rotary positions
    local_rope_theta: float = 0.0  # of layers with a window, which nothing stretches; 0: as others
    window: Literal["none", "always", "switched", "pattern", "chunks", "unrotated"] = "none"
    rotates_windows: bool = False  # beside layers with a window those without are not rotated
    default_window: int | None = None  # sliding_window where the key is absent
    default_window_layer: int = 0  # max_window_layers where the key is absent
    default_pattern: int = 0  # every so many layers one without a window, where no key says so

    @property
    def keys(self) -> set[str]:
        """Every key that is read."""
        rope = ROPE_KEYS if self.rope_theta else ()
        rope = (*rope, LOCAL_THETA) if self.local_rope_theta else rope
        special = (*self.bias_keys, *self.mla, *self.derived, *rope, *WINDOW_KEYS[self.window])
        return {*self.shapes.values(), *self.moe.values(), *special}


ANY_FAMILY = {
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1.0,),
    "pruned_heads": ({},),
}
FOUR_TIMES = "4 x d_model"  # a default of d_ff


@cache
def families() -> dict[str, Family]:
    """The families by their model_type."""
    tables = package_toml("models/huggingface/families.toml")

    def whole(name: str) -> dict[str, Any]:
        own = {key: value for key, value in tables[name].items() if key != "like"}
        return merged(whole(tables[name]["like"]), own) if "like" in tables[name] else own

    named = {name: whole(name) for name, table in tables.items() if "architecture" in table}
    return {name: read(Family, table, f"families.toml: {name}") for name, table in named.items()}
