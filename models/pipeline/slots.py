"""A ring of slots on each stage: what a microbatch's forward pass saves until its backward pass.

Stages are at different microbatches at a time, so each reads and writes another slot: code of one
device, in a `shard_map` over all axes.
"""

# Dims: K slots

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from scaling.models.execution import spec_of
from scaling.models.pipeline.shard_map import STAGE


def empty_slots(count: int, leaf: jax.Array) -> jax.Array:
    """Slots [K, ...] for arrays like `leaf`."""
    return jnp.zeros((count, *leaf.shape), leaf.dtype, out_sharding=_stacked(leaf))


def write_slot(
    slots_K: jax.Array, leaf: jax.Array, number_P: jax.Array, microbatches: int
) -> jax.Array:
    """The slots with `leaf`, of the microbatch of this number on each stage.

    What an idle pass saves, before the first microbatch and after the last, goes where nothing is
    read any more (`scaling.models.pipeline.schedule.slot_count`).
    """

    def write(slots_K: jax.Array, leaf: jax.Array, number_1: jax.Array) -> jax.Array:
        slot = jnp.clip(number_1[0], 0, microbatches) % len(slots_K)
        return jax.lax.dynamic_update_index_in_dim(slots_K, leaf, slot, 0)

    specs = _stacked(leaf), spec_of(leaf), P(STAGE)
    return jax.shard_map(write, in_specs=specs, out_specs=specs[0])(slots_K, leaf, number_P)


def read_slot(slots_K: jax.Array, number_P: jax.Array, microbatches: int) -> jax.Array:
    """Each stage's slot of the microbatch that it is at, without the dimension of slots.

    An idle stage reads the slot of the nearest microbatch, so that it computes on finite numbers.
    """

    def read(slots_K: jax.Array, number_1: jax.Array) -> jax.Array:
        return slots_K[jnp.clip(number_1[0], 0, microbatches - 1) % len(slots_K)]

    spec = spec_of(slots_K)
    out = P(*spec.partitions[1:])
    return jax.shard_map(read, in_specs=(spec, P(STAGE)), out_specs=out)(slots_K, number_P)


def _stacked(leaf: jax.Array) -> P:
    return P(None, *spec_of(leaf).partitions)
