"""Attention of some queries to a block of keys, and the merge of blocks of one softmax.

    scores = q k^T / sqrt(K)          lse = log sum exp(scores)          out = exp(scores - lse) v

The keys of a query may be split into blocks. Each block gives its own `out` and `lse`, and

    lse = log(exp(lse_1) + exp(lse_2))       out = exp(lse_1 - lse) out_1 + exp(lse_2 - lse) out_2

is the result of all keys at once (online softmax, arXiv 1805.02867; in blocks, 2112.05682). For the
backward pass a block needs `out` and `lse` of all keys, not its own (arXiv 2205.14135, B.4):

    p = exp(scores - lse)                       dv = p^T dout
    ds = p (dout v^T - sum(dout out))           dq = ds k          dk = ds^T q
"""

# Dims: B batch, T queries, U keys, N query heads, M key/value heads, G = N / M, K head dim, V of
#       values

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from scaling.models.attention_kernels.flash import flash_backward, flash_forward
from scaling.models.attention_kernels.reference import attention_scores, causal_mask, grouped
from scaling.models.documents import same_document

Segments = tuple[jax.Array, jax.Array]  # of queries [B, T] and of keys [B, U]


class PartialAttention(NamedTuple):
    """Attention over some of the keys: result and log-sum-exp."""

    out_BTNV: jax.Array
    lse_BTN: jax.Array  # float32


@dataclass(frozen=True)
class Mask:
    """A query sees the keys from its own position back to `window - 1` before it.

    offset: position of the first query less that of the first key: a number, or int32 [B].
    window: tokens that a query sees, itself included; None: all before it.
    """

    offset: Any = 0
    window: int | None = None

    def seen(self, queries: int, keys: int) -> jax.Array:
        """True where a query sees a key: bool [B or 1, 1, 1, T, U]."""
        offset = jnp.asarray(self.offset).reshape(-1, 1, 1, 1, 1)
        return causal_mask(queries, keys, self.window, offset)


@dataclass(frozen=True)
class AttentionKernel:
    """Computes one block: cuDNN's flash kernel if it has the mask, else XLA.

    cuDNN has the causal mask of the diagonal, with or without a window, and no mask at all. Others,
    and packed documents, it takes as a part of the scores that it adds.
    """

    implementation: Literal["cudnn", "xla"]
    precision: jax.lax.Precision
    softcap: float = 0.0  # of the scores, which XLA alone has; 0: none

    def forward(
        self,
        q_BTNK: jax.Array,
        k_BUMK: jax.Array,
        v_BUMV: jax.Array,
        mask: Mask | None,
        segments: Segments | None = None,
    ) -> PartialAttention:
        """Attention to these keys, all of them (`mask` None) or those of the mask.

        In packed documents to the keys of the query's own. `out` in compute format [B, T, N, V],
        `lse` float32 [B, T, N]: that of a query without a key is so low that its `out` does not
        count.
        """
        _check_shapes(q_BTNK, k_BUMK, v_BUMV)
        if self._flash(mask, segments, k_BUMK.shape[1]):
            flash = lambda seen, q, k, v: flash_forward(q, k, v, *_flash_mask(mask), seen)
            return PartialAttention(*_by_sequence(flash, mask, segments, q_BTNK, k_BUMK, v_BUMV))
        scores = self._scores(q_BTNK, k_BUMK, mask, segments)
        lse_BMGT = jax.nn.logsumexp(scores, axis=-1)
        p = jnp.exp(scores - lse_BMGT[..., None]).astype(v_BUMV.dtype)
        out = jnp.einsum("bmgtu,bumv->btmgv", p, v_BUMV, precision=self.precision)
        lse_BTN = lse_BMGT.transpose(0, 3, 1, 2).reshape(q_BTNK.shape[:3])
        return PartialAttention(out.reshape(*q_BTNK.shape[:3], -1), lse_BTN)

    def backward(
        self,
        q_BTNK: jax.Array,
        k_BUMK: jax.Array,
        v_BUMV: jax.Array,
        total: PartialAttention,
        dout_BTNV: jax.Array,
        mask: Mask | None,
        segments: Segments | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Gradients of q, k and v through these keys; `total` is the attention over all keys."""
        _check_shapes(q_BTNK, k_BUMK, v_BUMV)
        if self._flash(mask, segments, k_BUMK.shape[1]):
            flash = lambda seen, q, k, v, total, dout: flash_backward(
                *(q, k, v, total, dout), *_flash_mask(mask), seen
            )
            return _by_sequence(flash, mask, segments, q_BTNK, k_BUMK, v_BUMV, total, dout_BTNV)
        groups = grouped(q_BTNK, k_BUMK.shape[2])
        dout = grouped(dout_BTNV, k_BUMK.shape[2])
        product = lambda *args: jnp.einsum(*args, precision=self.precision)
        exact = lambda *args: jnp.einsum(
            *args, precision=self.precision, preferred_element_type=jnp.float32
        )
        scores = self._scores(q_BTNK, k_BUMK, mask, segments)
        p = jnp.exp(scores - _to_BMGT(total.lse_BTN, k_BUMK.shape[2])[..., None])
        dv = product("bmgtu,btmgv->bumv", p.astype(v_BUMV.dtype), dout)
        dp = exact("btmgv,bumv->bmgtu", dout, v_BUMV)
        mean_BTN = (dout_BTNV.astype(jnp.float32) * total.out_BTNV.astype(jnp.float32)).sum(-1)
        ds = p * (dp - _to_BMGT(mean_BTN, k_BUMK.shape[2])[..., None]) * q_BTNK.shape[-1] ** -0.5
        if self.softcap:  # the slope of the capped score, 0 where p is
            ds = ds * (1 - jnp.square(jnp.clip(scores / self.softcap, -1, 1)))
        ds = ds.astype(q_BTNK.dtype)
        dq = product("bmgtu,bumk->btmgk", ds, k_BUMK).reshape(q_BTNK.shape)
        return dq, product("bmgtu,btmgk->bumk", ds, groups), dv

    def _flash(self, mask: Mask | None, segments: Segments | None, keys: int) -> bool:
        adds_scores = keys % 2 == 0  # as jax wants of cuDNN's (0.10.2)
        has_mask = adds_scores or (segments is None and _is_own(mask))
        return self.implementation == "cudnn" and has_mask and not self.softcap

    def _scores(
        self, q_BTNK: jax.Array, k_BUMK: jax.Array, mask: Mask | None, segments: Segments | None
    ) -> jax.Array:
        seen = None if mask is None else mask.seen(q_BTNK.shape[1], k_BUMK.shape[1])
        if segments is not None:
            same = same_document(*segments)[:, None, None]
            seen = same if seen is None else seen & same
        return attention_scores(q_BTNK, k_BUMK, seen, self.precision, softcap=self.softcap)


def merge(first: PartialAttention, second: PartialAttention) -> PartialAttention:
    """Attention over the keys of both; `out` in float32."""
    lse_BTN = jnp.logaddexp(first.lse_BTN, second.lse_BTN)
    weighted = lambda part: part.out_BTNV * jnp.exp(part.lse_BTN - lse_BTN)[..., None]
    return PartialAttention(weighted(first) + weighted(second), lse_BTN)


def _by_sequence(
    flash: Callable, mask: Mask | None, segments: Segments | None, *arrays: Any
) -> Any:
    """cuDNN's kernel; of a mask that it does not have, one call for each sequence.

    As in `models.attention`: so the part of the scores that such a mask adds is of one sequence.
    """
    added = None if _is_own(mask) else mask
    if segments is None and added is None:
        return flash(None, *arrays)
    queries, keys = arrays[0].shape[1], arrays[1].shape[1]
    offset = None if added is None else jnp.broadcast_to(added.offset, len(arrays[0]))

    def one(row: tuple) -> Any:
        segments, offset, arrays = jax.tree.map(lambda x: x[None], row)
        seen = jnp.ones((), bool)
        if segments is not None:
            seen = same_document(*segments)[:, None]
        if added is not None:
            seen &= replace(added, offset=offset).seen(queries, keys)[:, 0]
        return jax.tree.map(lambda x: x[0], flash(seen, *arrays))

    return jax.lax.map(one, (segments, offset, arrays))


def _is_own(mask: Mask | None) -> bool:
    """True of a mask that cuDNN has itself."""
    return mask is None or isinstance(mask.offset, int)


def _flash_mask(mask: Mask | None) -> tuple[bool, int | None]:
    """`causal` and `window` of `scaling.models.attention_kernels.flash`."""
    if mask is None or not _is_own(mask):
        return False, None
    assert mask.offset == 0
    return True, mask.window


def _check_shapes(q_BTNK: jax.Array, k_BUMK: jax.Array, v_BUMV: jax.Array) -> None:
    B, _, _, K = q_BTNK.shape
    chex.assert_shape(k_BUMK, (B, None, None, K))
    chex.assert_shape(v_BUMV, (*k_BUMK.shape[:3], None))


def _to_BMGT(x_BTN: jax.Array, M: int) -> jax.Array:
    B, T, N = x_BTN.shape
    return x_BTN.reshape(B, T, M, N // M).transpose(0, 2, 3, 1)
