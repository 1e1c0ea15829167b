"""Attention that stores its scores: for values of another length than keys, and for queries that
come behind the keys they see.
"""

# Dims: B batch, T queries, U keys, N query heads, M key/value heads, G = N / M, K, V head dims

import jax
import jax.numpy as jnp

HIDDEN = -1e30  # the score of a key that is not seen


def seen_TU(queries: int, keys: int, window: int | None, first: jax.Array | int = 0) -> jax.Array:
    """Which keys each query sees: its own position back to `window - 1` before it; bool [T, U].

    Args:
        queries, keys: how many of each.
        window: None: all keys before it.
        first: position of the first query; keys begin at 0.
    """
    ago = first + jnp.arange(queries)[:, None] - jnp.arange(keys)
    return (ago >= 0) & (ago < (keys if window is None else window))


def attend_stored(
    q_BTNK: jax.Array,
    k_BUMK: jax.Array,
    v_BUMV: jax.Array,
    seen: jax.Array,
    precision: jax.lax.Precision,
    scale: float | None = None,
) -> jax.Array:
    """softmax(scale q k^T) v -> [B, T, N, V] in compute format; the softmax in float32.

    Args:
        q_BTNK: queries; `k_BUMK`, `v_BUMV`: keys and values, M a divisor of N.
        seen: bool [T, U].
        precision: of both products.
        scale: None: 1 / sqrt(K).
    """
    B, T, N, K = q_BTNK.shape
    M = k_BUMK.shape[2]
    scores = jnp.einsum(
        "btmgk,bumk->bmgtu",
        q_BTNK.reshape(B, T, M, N // M, K),
        k_BUMK,
        precision=precision,
        preferred_element_type=jnp.float32,
    )
    scores = scores * (K**-0.5 if scale is None else scale)
    p = jax.nn.softmax(jnp.where(seen, scores, HIDDEN)).astype(v_BUMV.dtype)
    return jnp.einsum("bmgtu,bumv->btmgv", p, v_BUMV, precision=precision).reshape(B, T, N, -1)
