"""Kernels of one device in a forward pass: decoding one token per sequence, or reading a prompt.

    qkv  attention  o  norm  gate+up  activation  down  norm       and the head after all layers

Products of one input run as one, as serving engines fuse them. Decoding with latent attention is
the absorbed form (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries are multiplied into the
latent space, so that the cache is read as it is stored, once for all heads.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

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

    @property
    def tokens(self) -> float:
        """Positions that are computed."""
        return self.sequences * self.queries


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
    itemsizes = value, formats.weight_bytes, value
    for moe, layers in layer_kinds(config):
        for product in layer_products(config, moe, tensor):
            grouped = product.stack.experts is not None
            batch, rows = _experts(work) if grouped else (1.0, work.tokens)
            dims = batch, rows, product.outputs, product.inputs
            kernel = ops.matmul(product.name, dims, formats.compute, itemsizes, grouped=grouped)
            yield kernel, layers
    head = 1.0, work.sequences, math.ceil(config.vocab_size / tensor), config.d_model
    yield ops.matmul("head", head, formats.compute, itemsizes), 1


def attention_kernel(work: ForwardPass) -> Called:
    """The attention of one layer, which reads the KV cache; flash for a prompt."""
    model, config, tensor = work.model, work.model.config, work.servers.mesh.tensor
    cached = work.sequences * work.keys * model.kv_token / tensor
    if config is None:
        return Kernel("KV cache", bytes=cached), 1
    decodes, compute = work.queries == 1, model.formats.compute
    keys_dim, values_dim = query_key_dim(config), value_dim(config)
    if config.mla and decodes:
        values_dim = config.mla.kv_lora_rank
        keys_dim = values_dim + config.mla.qk_rope_head_dim
    heads = -(-config.n_heads // tensor)  # whole ones
    sent = work.tokens * heads * (keys_dim + values_dim) * model.formats.activation_bytes
    kernel = ops.attention(
        "attention",
        (work.sequences, heads, work.queries, work.keys, float(keys_dim)),
        values_dim,
        cached / config.n_layers + sent,
        compute if STORED_BYTES.get(compute, 0) >= WIDE else "bf16",
        visible=1.0 if decodes else CAUSAL,  # no mask halves the scores of one query
    )
    return kernel, config.n_layers


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
    """Experts of the busiest device that are touched, one at least, and the rows of each."""
    model, spread = work.model, work.servers.mesh.expert
    tokens = work.tokens * spread  # of all devices that share the experts
    here = max(1.0, model.experts / spread * model.touched(tokens))
    return here, max(1.0, tokens * model.used / spread / here)
