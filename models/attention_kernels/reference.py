"""Attention that stores its scores: for values of another length than keys, and for decoding."""

# Dims: B batch, T queries, U keys, N query heads, M key/value heads, G = N / M, K, V head dims

import chex
import jax
import jax.numpy as jnp

# The score of a masked key. Finite: exp(MASK_VALUE - lse) is 0, MASK_VALUE - MASK_VALUE is no NaN.
MASK_VALUE = -1e30


def causal_mask(
    queries: int, keys: int, window: int | None, offset: jax.Array | int = 0
) -> jax.Array:
    """True where a query sees a key: bool [T, U], or [..., T, U] by the shape of `offset`.

    A query sees `window` tokens, itself included (None: all before it). `offset` is the position of
    the first query less that of the first key; int, or int32 [..., 1, 1].
    """
    distance = offset + jnp.arange(queries)[:, None] - jnp.arange(keys)
    mask = distance >= 0
    return mask if window is None else mask & (distance < window)


def reference_attention(
    q_BTNK: jax.Array,
    k_BUMK: jax.Array,
    v_BUMV: jax.Array,
    mask: jax.Array,
    precision: jax.lax.Precision,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks_N: jax.Array | None = None,
) -> jax.Array:
    """softmax(scale q k^T) v -> [B, T, N, V] in compute format; the softmax in float32.

    `mask` is [T, U], as that of `causal_mask`, or [B, 1, 1, T, U]; `scale` None: 1 / sqrt(K). With
    a `softcap` c scores s are c tanh(s / c). `sinks_N`: of each head one more score, of no value.
    """
    scores = attention_scores(q_BTNK, k_BUMK, mask, precision, scale, softcap)
    if sinks_N is None:
        p = jax.nn.softmax(scores).astype(v_BUMV.dtype)
    else:
        sinks = sinks_N.reshape(k_BUMK.shape[2], -1, 1)
        total_BMGT = jnp.logaddexp(jax.nn.logsumexp(scores, axis=-1), sinks)
        p = jnp.exp(scores - total_BMGT[..., None]).astype(v_BUMV.dtype)
    out = jnp.einsum("bmgtu,bumv->btmgv", p, v_BUMV, precision=precision)
    return out.reshape(*q_BTNK.shape[:3], -1)


def attention_scores(
    q_BTNK: jax.Array,
    k_BUMK: jax.Array,
    mask: jax.Array | None,
    precision: jax.lax.Precision,
    scale: float | None = None,
    softcap: float = 0.0,
) -> jax.Array:
    """scale q k^T, MASK_VALUE where the mask hides a key: float32 [B, M, G, T, U].

    `mask`, `scale`, `softcap` as of `reference_attention`; without a mask every key is seen.
    """
    B, T, _, K = q_BTNK.shape
    U, M = k_BUMK.shape[1:3]
    chex.assert_shape(k_BUMK, (B, U, M, K))
    scores = jnp.einsum(
        "btmgk,bumk->bmgtu",
        grouped(q_BTNK, M),
        k_BUMK,
        precision=precision,
        preferred_element_type=jnp.float32,
    )
    scores = softcapped(scores * (K**-0.5 if scale is None else scale), softcap)
    if mask is None:
        return scores
    chex.assert_shape(mask, (..., T, U))
    return jnp.where(mask, scores, MASK_VALUE)


def softcapped(x: jax.Array, cap: float) -> jax.Array:
    """cap tanh(x / cap) (Gemma 2, arXiv 2408.00118, section 2); x without a cap."""
    return cap * jnp.tanh(x / cap) if cap else x


def grouped(x_BTNK: jax.Array, M: int) -> jax.Array:
    """Query heads by the key/value head that they share: [B, T, M, G, K]."""
    B, T, N, K = x_BTNK.shape
    return x_BTNK.reshape(B, T, M, N // M, K)
