"""Kernels of one device in a forward pass: decoding one token per sequence, or reading a prompt.

    qkv  attention  o  norm  gate+up  activation  down  norm       and the head after all layers

Products of one input run as one, as serving engines fuse them. Decoding with latent attention is
the absorbed form (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries are multiplied into the
latent space, so that the cache is read as it is stored, once for all heads.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from scaling.analytic.products import layer_products
from scaling.models.accounting.matrices import (
    BYTES,
    STORED_BYTES,
    expert_width,
    layer_kinds,
    n_moe_layers,
    query_key_dim,
    value_dim,
)
from scaling.program import ops
from scaling.program.ir import CAUSAL, Kernel
from scaling.questions.serving.case import ServedModel, Servers

NORM = 3  # passes over the stream: it is read, summed with what was added, and both are written
ACTIVATION = 3  # passes over the hidden units: gate and up are read, one is written
ROTATION = 2  # passes over queries and new keys
WIDE = 2  # bytes: the attention multiplies in no narrower format


@dataclass(frozen=True)
class ForwardPass:
    """What a forward pass computes on the devices of one replica."""

    model: ServedModel
    servers: Servers
    sequences: float  # of all devices along `tensor` together
    queries: int  # positions per sequence that are computed
    keys: int  # positions per sequence that are attended to
    prompts: float = 0.0  # that are read beside
    prompt: int = 0  # positions of each

    @property
    def tokens(self) -> float:
        return self.sequences * self.queries + self.prompts * self.prompt

    @property
    def tile(self) -> int:
        """Rows of a tile in which a product of experts is computed: 16, or 64."""
        return 64 if self.has_large_tiles else 16

    @property
    def has_large_tiles(self) -> bool:
        """True where an engine multiplies by experts in tiles of 64 rows that nobody measured.

        vLLM's `get_default_config` (fused_moe.py, 0.11): for sizes without a measured table, such
        as those of experts spread over devices, as soon as there are more tokens than experts on
        one, and in 8 bits always.
        """
        here, model = self.model.experts / self.servers.expert_groups, self.model
        narrow = model.formats.expert_bytes == BYTES["fp8"]
        return self.servers.expert_groups > 1 and (narrow or self.tokens > here)


Called = tuple[Kernel, int]  # with its calls


def weight_kernels(work: ForwardPass) -> Iterator[Called]:
    """Yields the products of weights; as one where the layers are not known."""
    model, tensor = work.model, work.servers.mesh.tensor
    config, formats = model.config, model.formats
    if config is None:
        flops, moved = 2 * work.tokens * model.active / tensor, model.weight_bytes / tensor
        yield Kernel("weights", kind="matmul", flops=flops, bytes=moved, dtype=formats.compute), 1
        return
    value = formats.activation_bytes
    for moe, layers in layer_kinds(config):
        whole = layer_products(config, moe, 1)
        for product, of_one in zip(layer_products(config, moe, tensor), whole, strict=True):
            grouped = product.stack.experts is not None
            batch, rows = _experts(work) if grouped else (1.0, work.tokens)
            if grouped and work.servers.whole_experts:
                product = of_one
            stored = formats.expert_bytes if grouped else formats.weight_bytes
            dims = batch, rows, product.outputs, product.inputs
            sizes = value, stored, value
            kernel = ops.matmul(product.name, dims, formats.compute, sizes, grouped=grouped)
            yield kernel, layers
    head = 1.0, work.sequences, math.ceil(config.vocab_size / tensor), config.d_model
    yield ops.matmul("head", head, formats.compute, (value, formats.weight_bytes, value)), 1


def attention_kernel(work: ForwardPass) -> Called:
    """The attention of one layer, which reads the KV cache; flash for a prompt."""
    model, config, tensor = work.model, work.model.config, work.servers.mesh.tensor
    cached = work.sequences * work.keys * model.kv_token / tensor
    cached *= work.servers.key_copies(config)
    if config is None:
        return Kernel("KV cache", bytes=cached), 1
    decodes, compute = work.queries == 1, model.formats.compute
    keys_dim, values_dim = query_key_dim(config), value_dim(config)
    if config.mla and decodes:
        values_dim = config.mla.kv_lora_rank
        keys_dim = values_dim + config.mla.qk_rope_head_dim
    groups = 1 if config.mla and decodes else -(-config.n_kv_heads // tensor)
    heads = -(-config.n_heads // tensor)  # whole ones
    sent = work.tokens * heads * (keys_dim + values_dim) * model.formats.activation_bytes
    kernel = ops.attention(
        "attention",
        (work.sequences, heads, work.queries, work.keys, float(keys_dim)),
        values_dim,
        cached / config.n_layers + sent,
        compute if STORED_BYTES.get(compute, 0) >= WIDE else "bf16",
        visible=1.0 if decodes else CAUSAL,  # no mask halves the scores of one query
        kv_heads=groups,
    )
    return kernel, config.n_layers


def attention_kernels(work: ForwardPass) -> Iterator[Called]:
    """Yields the attention of the sequences, and of prompts that are read beside."""
    yield attention_kernel(work)
    if work.prompts:
        read = replace(work, sequences=work.prompts, queries=work.prompt, prompts=0.0)
        yield attention_kernel(replace(read, keys=work.model.kept(work.prompt)))


def small_kernels(work: ForwardPass) -> Iterator[Called]:
    """Yields norms, rotations and activations: what is not a product and moves activations."""
    model, config, tensor = work.model, work.model.config, work.servers.mesh.tensor
    if config is None:
        return
    value, layers, moe = model.formats.activation_bytes, config.n_layers, config.moe
    stream = work.tokens * config.d_model * value
    heads = (config.n_heads + config.n_kv_heads) / tensor * query_key_dim(config)
    width = config.d_ff
    if moe and n_moe_layers(config):
        width = expert_width(config) * (moe.experts_per_token + moe.n_shared_experts)
    yield Kernel("norms", bytes=NORM * stream), 2 * layers + 1
    yield Kernel("rotation", bytes=ROTATION * work.tokens * heads * value), layers
    yield Kernel("activation", bytes=ACTIVATION * work.tokens * width / tensor * value), layers
    yield Kernel("sampling", bytes=work.sequences * config.vocab_size / tensor * BYTES["fp32"]), 1


def _experts(work: ForwardPass) -> tuple[float, float]:
    """Experts of the busiest device that are touched, one at least, and the rows of each.

    Of `spread` devices the busiest has as many more than the mean as the largest of so many normal
    numbers (Blom 1958), with the variance of experts that are picked independently of each other.
    """
    model, spread = work.model, work.servers.expert_groups
    tokens = work.tokens * work.servers.mesh.expert  # of all devices that share the experts
    experts, touched = model.experts / spread, model.touched(tokens)
    largest = NormalDist().inv_cdf((spread - 0.375) / (spread + 0.25))
    most = experts * touched + largest * math.sqrt(experts * touched * (1 - touched))
    here = max(1.0, min(experts, most))
    return here, max(1.0, tokens * model.used / spread / here)
