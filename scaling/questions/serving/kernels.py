"""Kernels of one device in a forward pass: decoding one token per sequence, or reading a prompt.

    qkv  attention  o  norm  gate+up  activation  down  norm       and the head after all layers

Products of one input run as one, as serving engines fuse them. Decoding with latent attention is
the absorbed form (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries are multiplied into the
latent space, so that the cache is read as it is stored, once for all heads.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from scaling.models.accounting.matrices import (
    BYTES,
    SAME_INPUT,
    STORED_BYTES,
    Stack,
    matrix_of_device,
    query_key_dim,
    stacks,
    value_dim,
)
from scaling.models.config import ModelConfig
from scaling.program import ops
from scaling.program.ir import CAUSAL, Kernel
from scaling.questions.serving.case import ServedModel, Servers

NORM = 3  # passes over the stream: it is read, summed with what was added, and both are written
ACTIVATION = 3  # passes over the hidden units: gate and up are read, one is written
ROTATION = 2  # passes over queries and new keys
WIDE = 2  # bytes: the attention multiplies in no narrower format


@dataclass(frozen=True)
class Pass:
    """What a forward pass computes on the devices of one replica."""

    sequences: float  # of all devices along `tensor` together
    queries: int  # positions per sequence that are computed
    keys: int  # positions per sequence that are attended to

    @property
    def tokens(self) -> float:
        """Positions that are computed."""
        return self.sequences * self.queries


Called = tuple[Kernel, int]  # with its calls


def weight_kernels(model: ServedModel, servers: Servers, work: Pass) -> Iterator[Called]:
    """Yields the products of weights."""
    config = model.config
    if config is None:
        yield _lumped(model, servers, work)
        return
    for name, layers, parts in _products_of(config):
        shapes = [matrix_of_device(config, part, servers.mesh.tensor) for part in parts]
        inputs, outputs = shapes[0][0], sum(columns for _, columns in shapes)
        grouped = parts[0].experts is not None
        batch, rows = _experts(model, servers, work) if grouped else (1.0, work.tokens)
        yield _product(name, model, (batch, rows, outputs, inputs), grouped), layers
    vocabulary = math.ceil(config.vocab_size / servers.mesh.tensor)
    yield _product("head", model, (1.0, work.sequences, vocabulary, config.d_model)), 1


def attention_kernel(model: ServedModel, servers: Servers, work: Pass) -> Called:
    """Return the attention of one layer, which reads the KV cache; flash for a prompt."""
    config, tensor = model.config, servers.mesh.tensor
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


def small_kernels(model: ServedModel, servers: Servers, work: Pass) -> Iterator[Called]:
    """Yields norms, rotations and activations: what is not a product and moves activations."""
    config, tensor = model.config, servers.mesh.tensor
    if config is None:
        return
    value, layers = model.formats.activation_bytes, config.n_layers
    stream = work.tokens * config.d_model * value
    heads = (config.n_heads + config.n_kv_heads) / tensor * query_key_dim(config)
    width = config.d_ff
    if config.moe and config.moe.first_dense_layers < layers:
        width = (config.moe.d_ff_expert or width) * (
            config.moe.experts_per_token + config.moe.n_shared_experts
        )
    yield Kernel("norms", bytes=NORM * stream), 2 * layers + 1
    yield Kernel("rotation", bytes=ROTATION * work.tokens * heads * value), layers
    yield Kernel("activation", bytes=ACTIVATION * work.tokens * width / tensor * value), layers
    yield Kernel("sampling", bytes=work.sequences * config.vocab_size / tensor * BYTES["fp32"]), 1


def _products_of(config: ModelConfig) -> Iterator[tuple[str, int, list[Stack]]]:
    """Yields name, layers and matrices of each product; of leading dense layers on their own."""
    joined: dict[tuple[str, int], list[Stack]] = {}
    seen: Counter[str] = Counter()
    for stack in stacks(config):
        key = SAME_INPUT.get(stack.name, stack.name), seen[stack.name]
        joined.setdefault(key, []).append(stack)
        seen[stack.name] += 1
    for (name, _), parts in joined.items():
        yield name, parts[0].layers, parts


def _product(
    name: str, model: ServedModel, dims: tuple[float, ...], grouped: bool = False
) -> Kernel:
    """A product (batch, m, n, k) of activations [m, k] with weights [k, n], `batch` of them."""
    value = model.formats.activation_bytes
    itemsizes = value, model.formats.weight_bytes, value
    return ops.matmul(name, dims, model.formats.compute, itemsizes, grouped=grouped)


def _experts(model: ServedModel, servers: Servers, work: Pass) -> tuple[float, float]:
    """Experts of the busiest device that are touched, one at least, and the rows of each."""
    spread = servers.mesh.expert
    tokens = work.tokens * spread  # of all devices that share the experts
    here = max(1.0, model.experts / spread * model.touched(tokens))
    return here, max(1.0, tokens * model.used / spread / here)


def _lumped(model: ServedModel, servers: Servers, work: Pass) -> Called:
    """All weights as one product, where the layers are not known."""
    return Kernel(
        "weights",
        kind="matmul",
        flops=2 * work.tokens * model.active / servers.mesh.tensor,
        bytes=model.weight_bytes / servers.mesh.tensor,
        dtype=model.formats.compute,
    ), 1
