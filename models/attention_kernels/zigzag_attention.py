"""Which chunks of queries and keys meet, when a sequence lies in zigzag order over C devices.

Device i holds the chunks i (early) and 2 C - 1 - i (late). To its own keys each chunk attends under
the causal mask, and late queries to early keys without one. To the keys of another device j it
attends in two pairs of chunks without any mask, the same work on every device:

    late queries   x  early keys of j                                always
    early queries  x  early keys of j                                if j < i
    late queries   x  late keys of j                                 if j > i

Both pairs run as one call of twice the batch. With a window, only the last rows of a chunk's keys
can be seen by later chunks, and only by their first queries: these alone meet, under a mask.
"""

# Dims: B batch, S sequence on one device, C its half (a chunk), N query heads, M key/value heads,
#       K head dim, R rows of a chunk's keys that others see
# kv: keys and values that others see, [2, B, 2 R, M, K]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scaling.models.attention_kernels.kernel import FAR, Kernel, Mask, Part, merge
from scaling.models.attention_kernels.kv_exchange import AXIS
from scaling.models.attention_kernels.zigzag import seen_rows


class Halves(NamedTuple):
    """What belongs to the two chunks of one device: arrays [B, C, ...], or parts of them."""

    early: Any
    late: Any


class Ours(NamedTuple):
    """A device's queries, their attention over all keys, and its gradient; S tokens each."""

    q_BSNK: jax.Array
    out_BSNK: jax.Array
    lse_BSN: jax.Array
    dout_BSNK: jax.Array


class Chunks:
    """The blocks of one device, inside `shard_map`."""

    def __init__(self, kernel: Kernel, window: int | None, chunk: int, devices: int):
        self.kernel, self.window = kernel, window
        self.chunk, self.devices = chunk, devices
        self.rows = seen_rows(window, chunk)

    def seen_by_others(self, kv: jax.Array) -> jax.Array:
        """The last rows of each chunk's keys and values."""
        return jnp.concatenate([half[:, :, self.chunk - self.rows :] for half in _split(kv, 2)], 2)

    def unseen_too(self, dkv: jax.Array) -> jax.Array:
        """The transpose: gradients of all rows from those of the last ones."""
        above = [(0, 0), (0, 0), (self.chunk - self.rows, 0), (0, 0), (0, 0)]
        return jnp.concatenate([jnp.pad(half, above) for half in _split(dkv, 2)], 2)

    def attend_to_own(self, q: jax.Array, k: jax.Array, v: jax.Array, kv: jax.Array) -> Halves:
        """Attention to this device's keys: each chunk to itself, then late to early."""
        of_both = _stacked(q), _stacked(k), _stacked(v)
        part = self.kernel.forward(*of_both, Mask(window=self.window))
        early, late = (Part(*parts) for parts in zip(*(_split(x, 0) for x in part), strict=True))
        early = Part(early.out_BTNK.astype(jnp.float32), early.lse_BTN)
        if self.rows:
            across = self.kernel.forward(
                self._first(_split(q, 1).late), *self._early(kv), self._mask_of_own()
            )
            late = merge(late, self._filled(across))
        return Halves(early, Part(late.out_BTNK.astype(jnp.float32), late.lse_BTN))

    def attend_to_others(self, total: Halves, q: jax.Array, kv: jax.Array, shift: int) -> Halves:
        """`total` and the keys of the device `shift` before this one."""
        before, mask = self._pairs(shift, q.shape[0])
        part = self.kernel.forward(self._queries(q, before), *self._keys(kv, before), mask)
        always, chosen = (
            self._filled(Part(*parts)) for parts in zip(*(_split(x, 0) for x in part), strict=True)
        )
        early, late = total.early, merge(total.late, always)
        merged = merge(_where(before, early, late), chosen)
        return Halves(_where(before, merged, early), _where(before, late, merged))

    def gradients_of_own(
        self, ours: Ours, k: jax.Array, v: jax.Array, kv: jax.Array
    ) -> tuple[Halves, jax.Array]:
        """Gradients of q by way of this device's keys, and of these keys and values; float32."""
        q, out, lse, dout = map(_stacked, ours)
        mask = Mask(window=self.window)
        dq, dk, dv = self.kernel.backward(q, _stacked(k), _stacked(v), Part(out, lse), dout, mask)
        early, late = _split(dq.astype(jnp.float32), 0)
        dkv = jnp.stack([jnp.concatenate(_split(x, 0), 1) for x in (dk, dv)]).astype(jnp.float32)
        if self.rows:
            q, out, lse, dout = (self._first(_split(x, 1).late) for x in ours)
            part = Part(out, lse)
            dq, *across = self.kernel.backward(q, *self._early(kv), part, dout, self._mask_of_own())
            seen = jnp.stack(across).astype(jnp.float32)
            dkv = dkv + self.unseen_too(jnp.concatenate([seen, jnp.zeros_like(seen)], 2))
            late = late + self._below(dq)
        return Halves(early, late), dkv

    def gradients_of_others(
        self, dq: Halves, ours: Ours, kv: jax.Array, shift: int
    ) -> tuple[Halves, jax.Array]:
        """`dq` with what the keys of another device add, and the gradients of these, as `kv`."""
        before, mask = self._pairs(shift, ours.q_BSNK.shape[0])
        q, out, lse, dout = (self._queries(x, before) for x in ours)
        keys = self._keys(kv, before)
        dq_pair, *dkv_pair = self.kernel.backward(q, *keys, Part(out, lse), dout, mask)
        always, chosen = (self._below(x) for x in _split(dq_pair, 0))
        early = dq.early + jnp.where(before, chosen, 0)
        late = dq.late + always + jnp.where(before, 0, chosen)
        always, chosen = _split(jnp.stack(dkv_pair), 1)
        of_early = always + jnp.where(before, chosen, 0)
        dkv = jnp.concatenate([of_early, jnp.where(before, 0, chosen)], 2)
        return Halves(early, late), dkv

    def _pairs(self, shift: int, batch: int) -> tuple[jax.Array, Mask | None]:
        """Whether the other device comes before this one; the mask of both pairs of chunks."""
        here = jax.lax.axis_index(AXIS)
        there = (here - shift) % self.devices
        apart = [2 * self.devices - 1 - here - there, jnp.abs(here - there)]
        return there < here, self._mask(jnp.repeat(jnp.stack(apart), batch))

    def _mask_of_own(self) -> Mask | None:
        return self._mask(2 * self.devices - 1 - 2 * jax.lax.axis_index(AXIS))

    def _mask(self, apart: jax.Array) -> Mask | None:
        """Of queries that are `apart` chunks after the keys, from their first rows to the last."""
        if self.window is None:
            return None
        return Mask(apart * self.chunk - (self.chunk - self.rows), self.window)

    def _queries(self, x: jax.Array, before: jax.Array) -> jax.Array:
        """Of both pairs, from [B, S, ...]: [2 B, R, ...]."""
        early, late = map(self._first, _split(x, 1))
        return jnp.concatenate([late, jnp.where(before, early, late)])

    def _keys(self, kv: jax.Array, before: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of both pairs, each [2 B, R, M, K]."""
        early, late = _split(kv, 2)
        k, v = jnp.concatenate([early, jnp.where(before, early, late)], 1)
        return k, v

    def _early(self, kv: jax.Array) -> tuple[jax.Array, jax.Array]:
        k, v = _split(kv, 2).early
        return k, v

    def _first(self, x: jax.Array) -> jax.Array:
        """The queries of a chunk that see keys of earlier ones."""
        return x[:, : self.rows]

    def _below(self, x: jax.Array, fill: float = 0.0) -> jax.Array:
        """A whole chunk from its first rows, float32."""
        below = [(0, 0), (0, self.chunk - self.rows), *[(0, 0)] * (x.ndim - 2)]
        return jnp.pad(x.astype(jnp.float32), below, constant_values=fill)

    def _filled(self, part: Part) -> Part:
        """The other rows see none of these keys."""
        return Part(self._below(part.out_BTNK), self._below(part.lse_BTN, FAR))


def _split(x: jax.Array, axis: int) -> Halves:
    return Halves(*jnp.split(x, 2, axis))


def _stacked(x_BS: jax.Array) -> jax.Array:
    """[B, S, ...] -> [2 B, C, ...]: the early chunks, then the late ones."""
    return jnp.concatenate(_split(x_BS, 1))


def _where(condition: jax.Array, first: Part, second: Part) -> Part:
    return Part(*(jnp.where(condition, a, b) for a, b in zip(first, second, strict=True)))
