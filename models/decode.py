"""Token by token: logits of new tokens from a cache of the ones before.

    cache  = empty_cache(...)
    logits, cache = extend(model, cache, prompt, 0)              prefill: T tokens at once
    logits, cache = extend(model, cache, token, position)        one at a time

Places behind the newest token may hold anything: a query sees its own position and those before
it, and a token is put in its place before anybody looks there. So a prompt may be padded.

The cache is cut like the activations: batch over data x fsdp x expert, key/value heads over tensor.
Latent attention keeps the latents, for all heads, so on every device along tensor.
"""

# Dims: B batch, T new tokens, U positions of the cache, D model, V vocabulary, L layers

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scaling.meshes.errors import InputError
from scaling.models.accounting.matrices import n_dense_layers, n_moe_layers
from scaling.models.attention_kernels.kv_cache import Past
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.transformer import Transformer


class Cache(NamedTuple):
    """The past of all layers, those in front of experts apart."""

    dense_layers: Past | None
    layers: Past


def empty_cache(config: ModelConfig, execution: Execution, batch: int, length: int) -> Cache:
    """Zeros for `length` positions of `batch` sequences, in compute format. Under the mesh.

    Raises:
        InputError: a execution that cuts the sequence, or more positions than the model has.
    """
    if execution.rules.axes("residual"):
        raise InputError("tokens are decoded on meshes without context and sequence parallelism")
    if config.positions == "learned" and length > config.max_positions:
        raise InputError(
            f"{length} positions are beyond the model's {config.max_positions} learned ones"
        )
    dense, moe = n_dense_layers(config), n_moe_layers(config)
    make = lambda layers: _zeros(config, execution, (layers, batch, length))
    return Cache(make(dense) if dense and moe else None, make(moe or dense))


def extend(
    model: Transformer, cache: Cache, tokens_BT: jax.Array, start: jax.Array | int
) -> tuple[jax.Array, Cache]:
    """float32 logits [B, T, V] of tokens at the positions from `start` on, and the longer cache.

    Args:
        model: built with a execution that does not cut the sequence.
        cache: has the positions before `start`, and room for T more.
        tokens_BT: int32.
        start: int scalar, may be traced.
    """
    start = jnp.asarray(start, jnp.int32)
    x_BTD = model.embedding(tokens_BT, start=start)

    def layer(x_BTD: jax.Array, both: Any) -> tuple[jax.Array, Past]:
        block, past = both
        return block.extended(x_BTD, past, start)

    dense_layers = cache.dense_layers
    if dense_layers is not None:
        x_BTD, dense_layers = jax.lax.scan(layer, x_BTD, (model.dense_layers, dense_layers))
    x_BTD, layers = jax.lax.scan(layer, x_BTD, (model.layers, cache.layers))
    return model.logits(x_BTD), Cache(dense_layers, layers)


def _zeros(config: ModelConfig, execution: Execution, shape: tuple[int, int, int]) -> Past:
    if config.mla:
        heads, dim = 1, None
        widths = config.mla.kv_lora_rank, config.mla.qk_rope_head_dim
    else:
        heads, dim = config.n_kv_heads, "kv_heads"
        widths = config.head_dim, config.head_dim
    spec = execution.spec(None, "batch", None, dim, None)
    zeros = (jnp.zeros((*shape, heads, w), execution.dtype, out_sharding=spec) for w in widths)
    return Past(*zeros)
