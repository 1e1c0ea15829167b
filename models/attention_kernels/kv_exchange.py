"""Exchange of keys and values over the mesh axis `context`: all-gather or ring.

    all-gather  everything at once; gradients are reduce-scattered
    ring        permuted from device to device, the next keys arriving while these are computed on;
                gradients travel along with the keys that they belong to, and home at the end

A device's keys and values are one message, end to end: a list of elements, so that they may be of
different lengths.

Per layer and device, of C - 1 others with kv bytes each: both receive (C - 1) kv forward, and in
the backward pass (C - 1) kv again and (C - 1) kv of gradients. The ring has buffers for two
devices' keys and values, the all-gather for all.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

CONTEXT = "context"  # the mesh axis

KeysValues = tuple[jax.Array, jax.Array]  # of one device, or their gradients
# (state, shift s, keys and values of device i - s) -> (state, gradients to return to that device)
Visit = Callable[[Any, int, KeysValues], tuple[Any, Any]]


@dataclass(frozen=True)
class KvExchange:
    """The exchange of one layer, inside `shard_map`."""

    method: Literal["ring", "all-gather"]
    # shifts of the devices whose keys are needed, along the ring and against it: zigzag.ring_hops
    hops: Sequence[Sequence[int]]
    devices: int  # size of the axis

    @property
    def shifts(self) -> tuple[int, ...]:
        """Device i visits the keys of device i - s, for each of these s."""
        return tuple(shift for direction in self.hops for shift in direction)

    def run(
        self, kv: KeysValues, state: Any, visit: Visit, saved: jax.Array | None = None
    ) -> tuple[Any, list[Any], jax.Array]:
        """`state` after visiting every needed device's keys and values, and two more results.

        The second is the gradients that `visit` returns, once per shift. The third is others'
        messages, [devices, elements], which as `saved` spare a second run of the same keys part of
        its communication: all gathered ones; of the ring the first to arrive.
        """
        own = _message(kv)
        if not self.shifts:
            return state, [], own[None][:0]
        if self.method == "ring":
            return self._ring(kv, state, visit, saved)
        gathered = jax.lax.all_gather(own, CONTEXT) if saved is None else saved
        returned = []
        for shift in self.shifts:
            device = (jax.lax.axis_index(CONTEXT) - shift) % self.devices
            theirs = jax.lax.dynamic_index_in_dim(gathered, device, keepdims=False)
            state, gradient = visit(state, shift, _parts(theirs, kv))
            returned.append(gradient)
        return state, returned, gathered

    def return_gradients(self, gradients: Sequence[KeysValues], kv: KeysValues) -> KeysValues:
        """The sum of all devices' gradients of this device's `kv`, float32, of its shapes.

        Communicated in their own format. Those that `visit` returned for shift s belong to device
        i - s.
        """
        messages = [_message(gradient) for gradient in gradients]
        if not messages:
            k, v = (jnp.zeros(x.shape, jnp.float32) for x in kv)
            return k, v
        returned = self._by_ring(messages) if self.method == "ring" else self._scattered(messages)
        return _parts(returned, kv)

    def _scattered(self, messages: Sequence[jax.Array]) -> jax.Array:
        zeros = jnp.zeros_like(messages[0])
        shifts = (shift % self.devices for shift in self.shifts)
        by_shift = dict(zip(shifts, messages, strict=True))
        stack = jnp.stack([by_shift.get(shift, zeros) for shift in range(self.devices)])
        shift_of_device = (jax.lax.axis_index(CONTEXT) - jnp.arange(self.devices)) % self.devices
        return jax.lax.psum_scatter(stack[shift_of_device], CONTEXT).astype(jnp.float32)

    def _ring(
        self, kv: KeysValues, state: Any, visit: Visit, saved: jax.Array | None
    ) -> tuple[Any, list[Any], jax.Array]:
        returned: list[Any] = []
        firsts: list[jax.Array] = []
        for direction in filter(None, self.hops):
            arrived = _message(kv)
            for shift in direction:
                if shift == direction[0] and saved is not None:
                    arrived = saved[len(firsts)]
                else:
                    arrived = self._permute(arrived, 1 if shift > 0 else -1)
                if shift == direction[0]:
                    firsts.append(arrived)
                # The next keys are sent after the previous ones have been visited: two are in
                # flight at most, however far ahead the compiler would prefetch.
                state, arrived = jax.lax.optimization_barrier((state, arrived))
                state, gradient = visit(state, shift, _parts(arrived, kv))
                returned.append(gradient)
        return state, returned, jnp.stack(firsts)

    def _by_ring(self, messages: Sequence[jax.Array]) -> jax.Array:
        remaining, sums = list(messages), []
        for direction in filter(None, self.hops):
            total = remaining.pop(0)
            for shift in direction[1:]:
                total = self._permute(total, 1 if shift > 0 else -1) + remaining.pop(0)
            sums.append(self._permute(total, -direction[-1]).astype(jnp.float32))
        return functools.reduce(jnp.add, sums)

    def _permute(self, x: jax.Array, hops: int) -> jax.Array:
        pairs = [(i, (i + hops) % self.devices) for i in range(self.devices)]
        return jax.lax.ppermute(x, CONTEXT, pairs)


def _message(kv: KeysValues) -> jax.Array:
    return jnp.concatenate([x.ravel() for x in kv])


def _parts(message: jax.Array, like: KeysValues) -> KeysValues:
    """Keys and values of the shapes of `like` from a message."""
    k, v = jnp.split(message, [like[0].size])
    return k.reshape(like[0].shape), v.reshape(like[1].shape)
