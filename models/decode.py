"""Decoding: new tokens behind a cache of keys and values of the tokens before.

    cache = empty_cache(...)
    x, cache = decode_step(model, cache, prompts, [0, 0])            prefill: T tokens at once
    x, cache = decode_step(model, cache, tokens, [5, 9])             one at a time

Each sequence has a place of its own. Rows of the cache behind its newest token may hold anything: a
query sees its own position and those before it, and a token's row is written before it is read. So
prompts of any lengths may be padded behind their ends.

The cache is sharded like the activations: batch over data x fsdp x expert, key/value heads over
tensor. Latent attention caches the latents, shared by all heads: a copy on each tensor device.
"""

# Dims: B batch, T new tokens, U positions of the cache, D model, V vocabulary, L layers,
#       N query heads, M key/value heads, K head dim; R, r: latent and rotated part of a latent key

import functools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from scaling.meshes.errors import InputError
from scaling.models.accounting.matrices import layer_scans, layer_stacks, query_key_dim
from scaling.models.attention import HEADS, KV_HEADS, Attention
from scaling.models.attention_kernels.reference import causal_mask, reference_attention
from scaling.models.config import ModelConfig, layer_configs
from scaling.models.execution import Execution
from scaling.models.latent_attention import LatentAttention
from scaling.models.pattern import scan_layers, scan_places
from scaling.models.positions import rotation_at
from scaling.models.transformer import Transformer, normed


class KVCache(NamedTuple):
    """Keys and values [B, U, M, K] of one layer; in a stack [L, B, U, M, K].

    Latent attention: `keys` holds norm(c) [B, U, 1, R], `values` the rotated k_r [B, U, 1, r].
    """

    keys: Any
    values: Any

    def append(self, keys: jax.Array, values: jax.Array, start_B: jax.Array) -> "KVCache":
        """The cache with the rows from `start_B` on replaced; what lies beyond its end is lost."""
        at_BT = start_B[:, None] + jnp.arange(keys.shape[1])
        ascending = dict(indices_are_sorted=True, unique_indices=True)
        write = jax.vmap(lambda old, new, at: old.at[at].set(new, mode="drop", **ascending))
        new = keys.astype(self.keys.dtype), values.astype(self.values.dtype)
        return KVCache(write(self.keys, new[0], at_BT), write(self.values, new[1], at_BT))


class Cache(NamedTuple):
    """The cache of all layers, stack by stack (`models.accounting.matrices.layer_stacks`)."""

    dense_layers: KVCache | None
    layers: KVCache
    last_layers: KVCache | None


def empty_cache(config: ModelConfig, execution: Execution, batch: int, length: int) -> Cache:
    """Zeros for `length` positions of `batch` sequences, in compute format. Under the mesh.

    Raises:
        InputError: a mesh that shards the sequence, or more positions than the model has.
    """
    if execution.rules.axes("sequence") or execution.rules.stream_cut[0]:
        raise InputError("tokens are decoded on meshes without context and sequence parallelism")
    if config.positions == "learned" and length > config.max_positions:
        raise InputError(
            f"{length} positions are beyond the model's {config.max_positions} learned ones"
        )
    stacks = {stack.name: len(stack.layers) for stack in layer_stacks(config)}
    make = lambda layers: _zeros(config, execution, (layers, batch, length)) if layers else None
    caches: dict[str, Any] = {name: make(stacks.get(name, 0)) for name in Cache._fields}
    return Cache(**caches)


def decode_step(
    model: Transformer, cache: Cache, tokens_BT: jax.Array, start_B: jax.Array
) -> tuple[jax.Array, Cache]:
    """The stream after the last layer [B, T, D] at positions from `start_B` on; the longer cache.

    The cache has the positions before `start_B`, int32 [B]. Tokens at positions beyond its end are
    padding, whose results mean nothing. The model's execution does not shard the sequence.
    """
    chex.assert_rank([tokens_BT, start_B], [2, 1])
    positions_BT = start_B[:, None] + jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)
    positions_BT = jnp.minimum(positions_BT, cache.layers.keys.shape[2] - 1)
    x_BTD = model.embedding(tokens_BT, positions_BS=positions_BT)

    def layer(kind: ModelConfig, x_BTD: jax.Array, both: Any) -> tuple[jax.Array, KVCache]:
        block, layer_cache = both
        attention, h_BTD = block.attention, normed(block.attention_norm, x_BTD)
        if isinstance(attention, LatentAttention):
            y_BTD, new = decode_latent_attention(attention, h_BTD, layer_cache, positions_BT, kind)
        else:
            y_BTD, new = decode_attention(attention, h_BTD, layer_cache, positions_BT, kind)
        return block.feed_forward(block.with_attention(x_BTD, y_BTD))[0], new

    config, caches = model.config, cache._asdict()
    of_kind = lambda kind: functools.partial(layer, kind)
    for stacks in layer_scans(config):
        names, places = [stack.name for stack in stacks], scan_places(config, stacks)
        both = [(getattr(model, name), caches[name]) for name in names]
        x_BTD, new = scan_layers(of_kind, layer_configs(config), x_BTD, *both, places=places)
        caches |= zip(names, new, strict=True)
    return x_BTD, Cache(**caches)


def decode_attention(
    attention: Attention,
    x_BTD: jax.Array,
    cache: KVCache,
    positions_BT: jax.Array,
    config: ModelConfig,
) -> tuple[jax.Array, KVCache]:
    """Attention [B, T, D] of tokens at these positions to those before and themselves; the new
    cache.

    The cache holds keys and values [B, U, M, K] of U positions, filled up to the first of these.
    `config` is the model as this layer sees it.
    """
    execution, cap = attention.execution, config.score_softcap
    positions = cache.keys.shape[1]
    rotate = rotation_at(config, positions_BT, positions)
    q_BTNK, k_BTMK, v_BTMK = attention.heads(x_BTD, rotate)

    def core(q: Any, k: Any, v: Any, cache: KVCache, start: Any, sinks_N: Any) -> tuple:
        cache = cache.append(k, v, start)
        mask = _mask(config, q.shape[1], positions, start)
        given = {"softcap": cap, "sinks_N": sinks_N}
        return reference_attention(q, *cache, mask, execution.precision, **given), cache

    query, keys = execution.spec(*HEADS), execution.spec(*KV_HEADS)
    both = KVCache(keys, keys)
    sinks_N = None if attention.sinks_N is None else attention.sinks_N[...]
    of_sinks = None if sinks_N is None else execution.spec("heads")
    mapped = jax.shard_map(
        core,
        in_specs=(query, keys, keys, both, execution.spec("batch"), of_sinks),
        out_specs=(query, both),
        check_vma=False,
    )
    a_BTNK, cache = mapped(q_BTNK, k_BTMK, v_BTMK, cache, positions_BT[:, 0], sinks_N)
    return attention.output(a_BTNK), cache


def decode_latent_attention(
    attention: LatentAttention,
    x_BTD: jax.Array,
    cache: KVCache,
    positions_BT: jax.Array,
    config: ModelConfig,
) -> tuple[jax.Array, KVCache]:
    """As `decode_attention`; the cache holds norm(c) [B, U, 1, R] and rotated k_r [B, U, 1, r].

    KVb is not applied to the cache but to the queries and to the attention's result (2405.04434,
    section 2.1.2):  q_n (c K)^T = (q_n K^T) c^T  and  p (c V) = (p c) V.
    """
    execution, cap = attention.execution, config.score_softcap
    n, positions = attention.mla.qk_nope_head_dim, cache.keys.shape[1]
    scale, rotate = query_key_dim(config) ** -0.5, rotation_at(config, positions_BT, positions)
    q_BTR, c_BTR, k_BTR = attention.latents(x_BTD, rotate)
    qn_BTNK, qr_BTNK = attention.queries(q_BTR, rotate)
    kv_RNK = execution.place(attention.kv_b_RNK[...].astype(execution.dtype), None, "heads", None)

    def core(qn: Any, qr: Any, kv: Any, new: Any, cache: KVCache, start: Any) -> tuple:
        product = functools.partial(jnp.einsum, precision=execution.precision)
        cache = cache.append(new[0][:, :, None], new[1][:, :, None], start)
        q = jnp.concatenate([product("btnk,rnk->btnr", qn, kv[..., :n]), qr], axis=-1)
        k = jnp.concatenate(cache, axis=-1)
        mask = _mask(config, q.shape[1], positions, start)
        a = reference_attention(q, k, cache.keys, mask, execution.precision, scale, cap)
        return product("btnr,rnv->btnv", a, kv[..., n:]), cache

    heads, shared = execution.spec(*HEADS), execution.spec("batch", "sequence", None)
    both = KVCache(*[execution.spec("batch", "sequence", None, None)] * 2)
    weight, starts = execution.spec(None, "heads", None), execution.spec("batch")
    mapped = jax.shard_map(
        core,
        in_specs=(heads, heads, weight, (shared,) * 2, both, starts),
        out_specs=(heads, both),
        check_vma=False,
    )
    a_BTNV, cache = mapped(qn_BTNK, qr_BTNK, kv_RNK, (c_BTR, k_BTR), cache, positions_BT[:, 0])
    return attention.output(a_BTNV), cache


def _mask(config: ModelConfig, queries: int, keys: int, start_B: jax.Array) -> jax.Array:
    """True where a query from `start_B` on sees a key of the cache: bool [B, 1, 1, T, U]."""
    start = start_B[:, None, None, None, None]
    mask = causal_mask(queries, keys, config.sliding_window, start)
    if (chunk := config.attention_chunk) is None:
        return mask
    of_queries = (start + jnp.arange(queries)[:, None]) // chunk
    return mask & (of_queries == jnp.arange(keys) // chunk)


def _zeros(config: ModelConfig, execution: Execution, shape: tuple[int, int, int]) -> KVCache:
    if config.mla:
        heads, dim = 1, None
        widths = config.mla.kv_lora_rank, config.mla.qk_rope_head_dim
    else:
        heads, dim = config.n_kv_heads, "kv_heads"
        widths = config.head_dim, config.head_dim
    spec = execution.spec(None, "batch", None, dim, None)
    zeros = (jnp.zeros((*shape, heads, w), execution.dtype, out_sharding=spec) for w in widths)
    return KVCache(*zeros)
