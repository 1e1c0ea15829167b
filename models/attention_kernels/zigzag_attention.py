"""Attention of one device's chunks of queries to chunks of keys, in zigzag order over C devices.

Device i has the chunks i (early) and 2 C - 1 - i (late). Each chunk attends to its own keys under
the causal mask, and late queries to early keys without a mask. To the keys of another device j the
device attends in two pairs of chunks without a mask, the same work on every device:

    late queries   x  early keys of j                                always
    early queries  x  early keys of j                                if j < i
    late queries   x  late keys of j                                 if j > i

Both pairs run as one call of twice the batch. With a window, only the last rows of a chunk's keys
are visible to later chunks, and only to their first queries: only these are computed, masked.
"""

# Dims: B batch, S sequence on one device, C its half (a chunk), N query heads, M key/value heads,
#       K head dim, V of values, R rows of a chunk's keys that are visible to other chunks
# kv: keys and values that are visible to other chunks, [B, 2 R, M, K] and [B, 2 R, M, V]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scaling.models.attention_kernels.kernel import (
    AttentionKernel,
    Mask,
    PartialAttention,
    Segments,
    merge,
)
from scaling.models.attention_kernels.kv_exchange import CONTEXT, KeysValues
from scaling.models.attention_kernels.reference import MASK_VALUE
from scaling.models.attention_kernels.zigzag import visible_rows


class Halves(NamedTuple):
    """A value for each of the two chunks of one device: arrays [B, C, ...], or trees of them."""

    early: Any
    late: Any


class QueryState(NamedTuple):
    """Queries of one device, their attention over all keys, and its gradient; S tokens each."""

    q_BSNK: jax.Array
    total: PartialAttention
    dout_BSNV: jax.Array


class ZigzagAttention:
    """The blocks of scores of one device, inside `shard_map`."""

    def __init__(
        self,
        kernel: AttentionKernel,
        window: int | None,
        chunk: int,
        devices: int,
        segments_CBS: jax.Array | None = None,
    ):
        """`segments_CBS` are those of packed documents on each device; None: there are none."""
        self.kernel, self.window = kernel, window
        self.chunk, self.devices, self.segments = chunk, devices, segments_CBS
        self.rows = visible_rows(window, chunk)

    def visible(self, x_BS: jax.Array) -> jax.Array:
        """The last rows of each chunk's keys or values: [B, 2 R, M, K] from [B, S, M, K]."""
        return jnp.concatenate([part[:, self.chunk - self.rows :] for part in _split(x_BS, 1)], 1)

    def all_rows(self, dx: jax.Array) -> jax.Array:
        """The transpose of `visible`: gradients of all rows from those of the last ones."""
        above = [(0, 0), (self.chunk - self.rows, 0), (0, 0), (0, 0)]
        return jnp.concatenate([jnp.pad(part, above) for part in _split(dx, 1)], 1)

    def attend_own(self, q: jax.Array, k: jax.Array, v: jax.Array, kv: KeysValues) -> Halves:
        """Attention to this device's keys: each chunk to itself, then late to early."""
        both = _stacked(q), _stacked(k), _stacked(v)
        part = self.kernel.forward(*both, Mask(window=self.window), self._segments_of_chunks())
        early, late = _parts(part)
        early = PartialAttention(early.out_BTNV.astype(jnp.float32), early.lse_BTN)
        if self.rows:
            across = self.kernel.forward(
                self._first(_split(q, 1).late), *self._early(kv), *self._own_mask()
            )
            late = merge(late, self._padded_part(across))
        return Halves(early, PartialAttention(late.out_BTNV.astype(jnp.float32), late.lse_BTN))

    def attend_other(self, total: Halves, q: jax.Array, kv: KeysValues, shift: int) -> Halves:
        """`total` merged with attention to the keys `kv` of the device `shift` before this one."""
        before, mask, segments = self._pairs(shift, q.shape[0])
        part = self.kernel.forward(
            self._queries(q, before), *self._keys(kv, before), mask, segments
        )
        always, either = map(self._padded_part, _parts(part))
        early, late = total.early, merge(total.late, always)
        merged = merge(_where(before, early, late), either)
        return Halves(_where(before, merged, early), _where(before, late, merged))

    def own_gradients(
        self, queries: QueryState, k: jax.Array, v: jax.Array, kv: KeysValues
    ) -> tuple[Halves, KeysValues]:
        """Gradients of q through this device's keys, and of these keys and values; float32."""
        q, total, dout = jax.tree.map(_stacked, queries)
        masks = Mask(window=self.window), self._segments_of_chunks()
        dq, dk, dv = self.kernel.backward(q, _stacked(k), _stacked(v), total, dout, *masks)
        early, late = _split(dq.astype(jnp.float32), 0)
        dk, dv = (jnp.concatenate(_split(x, 0), 1).astype(jnp.float32) for x in (dk, dv))
        if self.rows:
            q, total, dout = jax.tree.map(lambda x: self._first(_split(x, 1).late), queries)
            dq, *across = self.kernel.backward(q, *self._early(kv), total, dout, *self._own_mask())
            seen = (x.astype(jnp.float32) for x in across)
            of_early = lambda x: self.all_rows(jnp.concatenate([x, jnp.zeros_like(x)], 1))
            dk, dv = (x + of_early(dx) for x, dx in zip((dk, dv), seen, strict=True))
            late = late + self._padded(dq)
        return Halves(early, late), (dk, dv)

    def other_gradients(
        self, dq: Halves, queries: QueryState, kv: KeysValues, shift: int
    ) -> tuple[Halves, KeysValues]:
        """`dq` plus gradients through the keys `kv` of another device; gradients of `kv`."""
        before, mask, segments = self._pairs(shift, queries.q_BSNK.shape[0])
        q, total, dout = jax.tree.map(lambda x: self._queries(x, before), queries)
        keys = self._keys(kv, before)
        dq_pair, *dkv_pair = self.kernel.backward(q, *keys, total, dout, mask, segments)
        dk, dv = (self._returned(x, before) for x in dkv_pair)
        always, either = (self._padded(x) for x in _split(dq_pair, 0))
        early = dq.early + jnp.where(before, either, 0)
        late = dq.late + always + jnp.where(before, 0, either)
        return Halves(early, late), (dk, dv)

    def _pairs(self, shift: int, batch: int) -> tuple[jax.Array, Mask | None, Segments | None]:
        """True if the other device is before this one; mask and segments of both pairs."""
        here = jax.lax.axis_index(CONTEXT)
        there = (here - shift) % self.devices
        apart = [2 * self.devices - 1 - here - there, jnp.abs(here - there)]
        before, mask = there < here, self._mask(jnp.repeat(jnp.stack(apart), batch))
        if self.segments is None:
            return before, mask, None
        keys = self.visible(self._segments_on(there))
        segments = self._queries(self._segments_on(here), before), self._keys_of(keys, before)
        return before, mask, segments

    def _own_mask(self) -> tuple[Mask | None, Segments | None]:
        """Mask and segments of late queries and early keys."""
        here, segments = jax.lax.axis_index(CONTEXT), None
        if self.segments is not None:
            own = self._segments_on(here)
            queries, keys = self._first(_split(own, 1).late), _split(self.visible(own), 1).early
            segments = queries, keys
        return self._mask(2 * self.devices - 1 - 2 * here), segments

    def _segments_of_chunks(self) -> Segments | None:
        """The documents of each chunk's queries and of its own keys."""
        if self.segments is None:
            return None
        own = _stacked(self._segments_on(jax.lax.axis_index(CONTEXT)))
        return own, own

    def _segments_on(self, device: jax.Array) -> jax.Array:
        return jax.lax.dynamic_index_in_dim(self.segments, device, keepdims=False)

    def _mask(self, apart: jax.Array) -> Mask | None:
        """The mask of queries `apart` chunks after the keys: first rows against last rows."""
        if self.window is None:
            return None
        return Mask(apart * self.chunk - (self.chunk - self.rows), self.window)

    def _queries(self, x: jax.Array, before: jax.Array) -> jax.Array:
        """Queries of both pairs, [2 B, R, ...] from [B, S, ...]."""
        early, late = map(self._first, _split(x, 1))
        return jnp.concatenate([late, jnp.where(before, early, late)])

    def _keys(self, kv: KeysValues, before: jax.Array) -> KeysValues:
        """Keys and values of both pairs, each [2 B, R, M, ...]."""
        k, v = (self._keys_of(x, before) for x in kv)
        return k, v

    def _keys_of(self, x: jax.Array, before: jax.Array) -> jax.Array:
        early, late = _split(x, 1)
        return jnp.concatenate([early, jnp.where(before, early, late)])

    def _returned(self, dx: jax.Array, before: jax.Array) -> jax.Array:
        """Gradients of another device's keys or values, [B, 2 R, ...], from those of both pairs."""
        always, either = _split(dx, 0)
        early = always + jnp.where(before, either, 0)
        return jnp.concatenate([early, jnp.where(before, 0, either)], 1)

    def _early(self, kv: KeysValues) -> KeysValues:
        k, v = (_split(x, 1).early for x in kv)
        return k, v

    def _first(self, x: jax.Array) -> jax.Array:
        """The queries of a chunk that see keys of earlier chunks."""
        return x[:, : self.rows]

    def _padded(self, x: jax.Array, fill: float = 0.0) -> jax.Array:
        """A whole chunk from its first rows, float32, the others set to `fill`."""
        below = [(0, 0), (0, self.chunk - self.rows), *[(0, 0)] * (x.ndim - 2)]
        return jnp.pad(x.astype(jnp.float32), below, constant_values=fill)

    def _padded_part(self, part: PartialAttention) -> PartialAttention:
        """A whole chunk from its first rows; the others see none of these keys."""
        return PartialAttention(self._padded(part.out_BTNV), self._padded(part.lse_BTN, MASK_VALUE))


def _split(x: jax.Array, axis: int) -> Halves:
    return Halves(*jnp.split(x, 2, axis))


def _stacked(x_BS: jax.Array) -> jax.Array:
    """[B, S, ...] -> [2 B, C, ...]: the early chunks, then the late ones."""
    return jnp.concatenate(_split(x_BS, 1))


def _parts(pairs: PartialAttention) -> list[PartialAttention]:
    """The two parts of a call of twice the batch."""
    return [PartialAttention(*part) for part in zip(*(_split(x, 0) for x in pairs), strict=True)]


def _where(
    condition: jax.Array, first: PartialAttention, second: PartialAttention
) -> PartialAttention:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)
