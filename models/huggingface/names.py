"""The tensor of a Hugging Face file for each parameter, and the order of its dimensions there.

    layers/attention/query_DNK [L, D, N, K]   is, for each layer,
    model.layers.{layer}.self_attn.q_proj.weight   stored as "NK D": N x K rows of D

A parameter's dimensions are the capitals at the end of its name (as in `models/`), after layers and
experts, which number tensors. Parameters that share a tensor lie along the dimension that is marked
there, in the order of the table: `+` one behind the other, `~` in turn, element by element. After
`:` rotated channels are stored as pairs (2i, 2i + 1). names.toml has the names of a layer: a
family's own, or those of most.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from scaling.meshes.reading import package_toml
from scaling.models.accounting.matrices import layer_stacks
from scaling.models.config import ModelConfig

TABLES = package_toml("models/huggingface/names.toml")  # parameter -> its tensor, the dims there
SAME = TABLES["same"]  # a table -> the one that it equals

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
    layers: tuple[int, ...] | None = (
        None  # stacked along the first dimension; None: no such dimension
    )
    experts: int = 0  # stacked along the next; 0: no such dimension
    cut: int = 0  # dimension of a shared tensor along which the parameter is a part
    offset: int = 0  # of its first element there
    step: int = 1  # from one of its elements to the next
    whole: int = 0  # elements of the tensor there; 0: it is not shared
    pairs: range = range(0)  # channels of the last dim stored as pairs (2i, 2i + 1)

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


def stored_parameters(
    config: ModelConfig, family: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, StoredParameter]:
    """Every parameter of a model of model_type `family`, by path: `layers/attention/query_DNK`.

    `shapes` are those of the model's parameters by path.
    """
    stored: dict[str, StoredParameter] = {}
    shared: dict[tuple[str, tuple[int, ...] | None], list[str]] = {}
    for path, name, dims_in_file, layers in _entries(config, family):
        if path in shapes:
            stored[path] = _stored(config, path, name, dims_in_file, layers, shapes[path])
            if stored[path].step != 1 or "+" in dims_in_file:
                shared.setdefault((name, layers), []).append(path)
    assert stored.keys() == shapes.keys(), shapes.keys() - stored.keys()
    for paths in shared.values():
        own = [stored[path].own_shape[stored[path].cut] for path in paths]
        for i, (path, end) in enumerate(zip(paths, accumulate(own), strict=True)):
            part = stored[path]
            place = (end - own[i], 1) if part.step else (i, len(paths))
            stored[path] = replace(part, offset=place[0], step=place[1], whole=sum(own))
    return stored


def _entries(
    config: ModelConfig, family: str
) -> Iterator[tuple[str, str, str, tuple[int, ...] | None]]:
    """Parameter, tensor, its dimensions, and the layers that have one."""
    if family == "gpt2":
        yield "embedding/table_VD", f"{GPT2_PREFIX}wte.weight", "V D", None
        yield "embedding/positions_TD", f"{GPT2_PREFIX}wpe.weight", "T D", None
        place, last = f"{GPT2_PREFIX}h", f"{GPT2_PREFIX}ln_f"
    else:
        yield "embedding/table_VD", "model.embed_tokens.weight", "V D", None
        place, last = "model.layers", "model.norm"
    for stack in layer_stacks(config):
        parts = ["norms_" + config.norms, "attention", "experts" if stack.moe else "mlp"]
        if config.mla:
            parts[1] = "latent"
        for part in parts:
            own = f"{family}_{part}"
            table = TABLES.get(SAME.get(own, own), TABLES[part])
            for parameter, (tensor, dims) in table.items():
                name = f"{place}.{{layer}}.{tensor}"
                yield f"{stack.name}/{parameter}", name, dims, stack.layers
    yield "final_norm/scale", f"{last}.weight", "D", None
    yield "final_norm/bias", f"{last}.bias", "D", None
    yield "head_VD", "lm_head.weight", "V D", None


def _stored(
    config: ModelConfig,
    path: str,
    name: str,
    dims_in_file: str,
    layers: tuple[int, ...] | None,
    shape: tuple[int, ...],
) -> StoredParameter:
    last, marked = path.rpartition("/")[2], dims_in_file.split()
    experts = int("{expert}" in name)
    sizes = shape[(layers is not None) + experts :]
    parts = [dims.rstrip("+~:") for dims in marked]
    dims = last.rpartition("_")[2][experts:]  # the parameter's own order of the same dimensions
    if last in ("scale", "bias"):  # of one dimension, or of two that are one there
        dims = "NK"[: len(sizes)]
        parts = [dims]
    stored = StoredParameter(name, tuple(parts), dims, dict(zip(dims, sizes, strict=True)), layers)
    shared = [i for i, dims in enumerate(marked) if dims[-1] in "+~"]
    rotated = config.rotated_channels if ":" in dims_in_file and config.positions == "rope" else 0
    first = stored.sizes[dims[-1]] - rotated if config.mla and rotated else 0
    return replace(
        stored,
        experts=shape[layers is not None] if experts else 0,
        cut=shared[0] if shared else 0,
        step=int("~" not in dims_in_file),
        pairs=range(first, first + rotated),
    )
