"""How the devices of `context` come by each other's keys and values, and give gradients back.

    all-gather  everything at once; gradients are reduce-scattered
    ring        passed on from device to device, the next ones arriving while these are worked on;
                gradients travel along with the keys that they belong to, and home at the end

Per layer and device, of C - 1 others with kv bytes each: both receive (C - 1) kv forward, and in
the backward pass (C - 1) kv again and (C - 1) kv of gradients. The ring has room for two devices'
keys and values, the gather needs it for all.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

AXIS = "context"

# What has been made of the keys met so far, a shift s, keys and values of device i - s -> the same
# with these, and what goes back to that device.
Meet = Callable[[Any, int, jax.Array], tuple[Any, Any]]


class Passing:
    """One layer's exchange, inside `shard_map`."""

    def __init__(
        self, method: Literal["ring", "all-gather"], walks: Sequence[Sequence[int]], devices: int
    ):
        """`walks`: whose keys are needed, see `models.attention_kernels.zigzag`; `devices`: of the
        axis."""
        self.method, self.walks, self.devices = method, walks, devices

    @property
    def shifts(self) -> tuple[int, ...]:
        """Device i meets the keys of i - s, for each of these s."""
        return tuple(shift for walk in self.walks for shift in walk)

    def round(
        self, kv: jax.Array, state: Any, meet: Meet, fetched: jax.Array | None = None
    ) -> tuple[Any, list[Any], jax.Array]:
        """`state` after meeting every needed device's keys and values.

        Args:
            kv: this device's.
            state: to begin with.
            meet: called once for each shift.
            fetched: what an earlier round of the same keys has returned as such.

        Returns:
            The state, what `meet` gives back per shift, and others' keys to spare a second round
            a part of its way: all gathered ones; of the ring those that arrive first, stacked.
        """
        if not self.shifts:
            return state, [], kv[None][:0]
        if self.method == "ring":
            return self._ring(kv, state, meet, fetched)
        gathered = jax.lax.all_gather(kv, AXIS) if fetched is None else fetched
        returned = []
        for shift in self.shifts:
            device = (jax.lax.axis_index(AXIS) - shift) % self.devices
            theirs = jax.lax.dynamic_index_in_dim(gathered, device, keepdims=False)
            state, back = meet(state, shift, theirs)
            returned.append(back)
        return state, returned, gathered

    def home(self, returned: Sequence[jax.Array], kv: jax.Array) -> jax.Array:
        """The sum of what all devices give back to this one, float32, shaped like `kv`.

        It travels in its own format. What `meet` gave back for a shift belongs to device i - s.
        """
        if not returned:
            return jnp.zeros(kv.shape, jnp.float32)
        if self.method == "ring":
            return self._ring_home(returned)
        zeros = jnp.zeros_like(returned[0])
        shifts = (shift % self.devices for shift in self.shifts)
        by_shift = dict(zip(shifts, returned, strict=True))
        stack = jnp.stack([by_shift.get(shift, zeros) for shift in range(self.devices)])
        shift_of = (jax.lax.axis_index(AXIS) - jnp.arange(self.devices)) % self.devices
        return jax.lax.psum_scatter(stack[shift_of], AXIS).astype(jnp.float32)

    def _ring(
        self, kv: jax.Array, state: Any, meet: Meet, fetched: jax.Array | None
    ) -> tuple[Any, list[Any], jax.Array]:
        returned: list[Any] = []
        firsts: list[jax.Array] = []
        for walk in filter(None, self.walks):
            arrived = kv
            for shift in walk:
                if shift == walk[0] and fetched is not None:
                    arrived = fetched[len(firsts)]
                else:
                    arrived = self._pass_on(arrived, 1 if shift > 0 else -1)
                if shift == walk[0]:
                    firsts.append(arrived)
                # The next ones are sent off after those before these have been met: two are
                # underway at most, however far ahead the compiler would like to fetch.
                state, arrived = jax.lax.optimization_barrier((state, arrived))
                state, back = meet(state, shift, arrived)
                returned.append(back)
        return state, returned, jnp.stack(firsts)

    def _ring_home(self, returned: Sequence[jax.Array]) -> jax.Array:
        left, sums = list(returned), []
        for walk in filter(None, self.walks):
            given = left.pop(0)
            for shift in walk[1:]:
                given = self._pass_on(given, 1 if shift > 0 else -1) + left.pop(0)
            sums.append(self._pass_on(given, -walk[-1]).astype(jnp.float32))
        return functools.reduce(jnp.add, sums)

    def _pass_on(self, x: jax.Array, by: int) -> jax.Array:
        """Every device's `x` to the device `by` further along the ring."""
        pairs = [(i, (i + by) % self.devices) for i in range(self.devices)]
        return jax.lax.ppermute(x, AXIS, pairs)
