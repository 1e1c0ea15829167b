"""The tensor of a Hugging Face file for each parameter, and the order of its dimensions there.

    layers/attention/query_DNK [L, D, N, K]   is, for each layer,
    model.layers.{layer}.self_attn.q_proj.weight   stored as "NK D": N x K rows of D

A parameter's dimensions are the capitals at the end of its name (as in `models/`), after layers and
experts, which number tensors. Parameters that share a tensor lie along the dimension that is marked
there, in the order of the table: `+` one behind the other, `~` in turn, element by element.
names.toml has the names.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from scaling.meshes.reading import package_toml
from scaling.models.accounting.matrices import expert_width, layer_stacks, query_key_dim
from scaling.models.config import ModelConfig

Entry = tuple[str, str, str]  # parameter, tensor, its dimensions

TABLES = {
    name: tuple((parameter, *stored) for parameter, stored in table.items())
    for name, table in package_toml("models/huggingface/names.toml").items()
}
MIXTRAL_NAMES = {"up_proj": "w3", "gate_proj": "w1", "down_proj": "w2"}
# The tensors of the norms of a layer, by `ModelConfig.norms`.
NORMS = {
    "before": {"attention_norm": "input", "mlp_norm": "post_attention"},
    "after": {"attention_post_norm": "post_attention", "mlp_post_norm": "post_feedforward"},
    "both": {
        **{"attention_norm": "input", "attention_post_norm": "post_attention"},
        **{"mlp_norm": "pre_feedforward", "mlp_post_norm": "post_feedforward"},
    },
}

# Buffers that old files hold beside the weights: masks, and frequencies of the rotation.
IGNORED = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
GPT2_PREFIX = "transformer."  # missing in the files that OpenAI's GPT-2 was published in


@dataclass(frozen=True)
class StoredParameter:
    """The place of one parameter: one tensor, or one for each layer (and expert)."""

    name: str  # of the tensor; {layer} and {expert} stand for numbers
    dims_in_file: tuple[str, ...]  # for each dimension of the tensor, the dimensions it is made of
    dims: str  # of the parameter, without layers and experts
    sizes: Mapping[str, int] = field(hash=False)  # by dimension
    layers: range | None = None  # stacked along the first dimension; None: no such dimension
    experts: int = 0  # stacked along the next; 0: no such dimension
    cut: int = 0  # dimension of a shared tensor along which the parameter is a part
    offset: int = 0  # of its first element there
    step: int = 1  # from one of its elements to the next
    whole: int = 0  # elements of the tensor there; 0: it is not shared
    interleaved: int = 0  # number of last channels of the last dim stored as pairs (2i, 2i + 1)

    @property
    def own_shape(self) -> tuple[int, ...]:
        """Shape of the parameter's part of the tensor."""
        return tuple(math.prod(self.sizes[d] for d in dims) for dims in self.dims_in_file)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        shape = list(self.own_shape)
        shape[self.cut] = self.whole or shape[self.cut]
        return tuple(shape)

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """Shape of the parameter, with layers and experts."""
        stacked = [len(self.layers)] if self.layers is not None else []
        stacked += [self.experts] if self.experts else []
        return (*stacked, *(self.sizes[d] for d in self.dims))

    def names(self) -> list[str]:
        """Names of all tensors, in the order of layers and experts."""
        layers = self.layers if self.layers is not None else [None]
        experts = range(self.experts) if self.experts else [None]
        return [self.tensor(layer, expert) for layer in layers for expert in experts]

    def tensor(self, layer: int | None, expert: int | None) -> str:
        """Name of the tensor of one layer and expert."""
        return self.name.format(layer=layer, expert=expert)


def stored_parameters(config: ModelConfig, family: str) -> dict[str, StoredParameter]:
    """Every parameter of a model of model_type `family`, by path: `layers/attention/query_DNK`."""
    stored: dict[str, StoredParameter] = {}
    shared: dict[tuple[str, range | None], list[str]] = {}
    for path, name, dims_in_file, layers in _entries(config, family):
        if _exists(config, path):
            stored[path] = _stored(config, path, name, dims_in_file.translate(UNMARKED), layers)
            marked = [i for i, dims in enumerate(dims_in_file.split()) if dims[-1] in MARKS]
            if marked:
                in_turn = MARKS[1] in dims_in_file
                stored[path] = replace(stored[path], cut=marked[0], step=0 if in_turn else 1)
                shared.setdefault((name, layers), []).append(path)
    for paths in shared.values():
        own = [stored[path].own_shape[stored[path].cut] for path in paths]
        for i, (path, end) in enumerate(zip(paths, accumulate(own), strict=True)):
            part = stored[path]
            place = (end - own[i], 1) if part.step else (i, len(paths))
            stored[path] = replace(part, offset=place[0], step=place[1], whole=sum(own))
    return stored


MARKS = "+~"  # of dims that parameters share: one behind the other, in turn
UNMARKED = str.maketrans("", "", MARKS)


def _entries(config: ModelConfig, family: str) -> Iterator[tuple[str, str, str, range | None]]:
    if family == "gpt2":
        yield "embedding/table_VD", f"{GPT2_PREFIX}wte.weight", "V D", None
        yield "embedding/positions_TD", f"{GPT2_PREFIX}wpe.weight", "T D", None
        for ours, theirs, dims_in_file in TABLES["gpt2_layer"]:
            name = f"{GPT2_PREFIX}h.{{layer}}.{theirs}"
            yield f"layers/{ours}", name, dims_in_file, range(config.n_layers)
        for ours, theirs, _ in TABLES["norm"]:
            yield f"final_norm/{ours}", f"{GPT2_PREFIX}ln_f.{theirs}", "D", None
    else:
        yield "embedding/table_VD", "model.embed_tokens.weight", "V D", None
        for stack in layer_stacks(config):
            yield from _layers(stack.name, stack.layers, _layer(config, family, stack.moe))
        yield "final_norm/scale", "model.norm.weight", "D", None
    yield "head_VD", "lm_head.weight", "V D", None


def _layers(
    group: str, layers: range, entries: Iterator[Entry]
) -> Iterator[tuple[str, str, str, range]]:
    for ours, theirs, dims_in_file in entries:
        yield f"{group}/{ours}", f"model.layers.{{layer}}.{theirs}", dims_in_file, layers


def _layer(config: ModelConfig, family: str, moe: bool) -> Iterator[Entry]:
    """One layer of a family with rotary positions."""
    for ours, theirs in NORMS[config.norms].items():
        yield f"{ours}/scale", f"{theirs}_layernorm.weight", "D"
    own = {name.removeprefix(f"{family}_"): t for name, t in TABLES.items()}
    for ours, theirs, dims_in_file in own["latent" if config.mla else "attention"]:
        if config.qk_norm_over == "projection" and "_norm" in ours:
            dims_in_file = "NK" if ours.startswith("query") else "MK"
        yield f"attention/{ours}", f"self_attn.{theirs}", dims_in_file
    for ours, theirs, dims_in_file in own["experts" if moe else "mlp"]:
        if moe and family == "mixtral":
            for published, mixtral in MIXTRAL_NAMES.items():
                theirs = theirs.replace(published, mixtral)
        place = "block_sparse_moe" if moe and family == "mixtral" else "mlp"
        yield f"mlp/{ours}", f"{place}.{theirs}", dims_in_file


def _exists(config: ModelConfig, path: str) -> bool:
    """True if a model of this configuration has the parameter `path`."""
    parent, _, name = path.rpartition("/")
    name = parent.rpartition("/")[2] if name == "scale" else name  # a norm: whose it is
    if "gate" in name and not config.is_gated:
        return False
    mla, moe = config.mla, config.moe
    qkv_bias = config.bias or config.qkv_bias
    low_rank_query = mla is not None and mla.q_lora_rank is not None
    by_prefix = {
        "head_VD": not config.tied_embeddings,
        "positions_TD": config.positions == "learned",
        "router_bias": moe is not None and moe.selection_bias,
        "shared_": moe is not None and moe.n_shared_experts > 0,
        "sinks": config.sinks,
        "query_norm": config.qk_norm,
        "key_norm": config.qk_norm,
        "query_a_": low_rank_query,
        "query_b_": low_rank_query,
        "query_DNK": not low_rank_query,
        "query_bias": qkv_bias,
        "key_bias": qkv_bias,
        "value_bias": qkv_bias,
    }
    for prefix, exists in by_prefix.items():
        if name.startswith(prefix):
            return exists
    return config.bias if "bias" in name else True


def _stored(
    config: ModelConfig, path: str, name: str, dims_in_file: str, layers: range | None
) -> StoredParameter:
    sizes, last = _sizes(config), path.rpartition("/")[2]
    parts = tuple(dims_in_file.split())
    if last in ("scale", "bias"):
        dims = parts[0]
    else:  # the parameter's own order of the same dimensions
        order = last.rpartition("_")[2]
        order = order[1:] if "{expert}" in name else order
        # Where a letter of the name is not among the file's (`DF` for "W D": an expert's width is
        # W), the remaining ones take the places left, in order.
        spare = iter(letter for letter in "".join(parts) if letter not in order)
        dims = "".join(d if d in "".join(parts) else next(spare) for d in order)
    rotated = config.mla.qk_rope_head_dim if config.mla else 0
    pairs = last.startswith(("query_b_", "query_DNK", "kv_a_DR")) and config.positions == "rope"
    return StoredParameter(
        name,
        parts,
        dims,
        {d: sizes[d] for d in dims},
        layers,
        config.moe.n_experts if config.moe and "{expert}" in name else 0,
        interleaved=rotated if pairs else 0,
    )


def _sizes(config: ModelConfig) -> dict[str, int]:
    mla, moe = config.mla, config.moe
    width = expert_width(config) if moe else 0
    sizes = {
        "V": config.vocab_size,
        "T": config.max_positions,
        "D": config.d_model,
        "N": config.n_heads,
        "M": config.n_kv_heads,
        "K": query_key_dim(config),
        "F": config.d_ff,
        "E": moe.n_experts if moe else 0,
        "W": width,
        "S": width * moe.n_shared_experts if moe else 0,
    }
    if mla:
        sizes |= {
            "C": mla.q_lora_rank or 0,
            "R": mla.kv_lora_rank,
            "A": mla.kv_lora_rank + mla.qk_rope_head_dim,
            "B": mla.qk_nope_head_dim + mla.v_head_dim,
            "U": mla.v_head_dim,
        }
    return sizes
