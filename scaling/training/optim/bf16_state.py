"""Optimiser state kept in bf16: half the memory; an optimiser computes with it in float32.

Rounding to nearest drops what is added to a mean whenever it is under 1/512 of it. Stochastic
rounding goes up or down with the odds of the distance, so that the mean over steps is right:

    bf16 is the upper half of a float32:  add 16 random bits below it, and truncate
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

LOW_BITS = 16  # of a float32, which bf16 lacks


class StoredState(NamedTuple):
    """The state of the optimiser inside, its arrays in bf16."""

    steps: jax.Array  # int32 scalar: finished steps
    state: Any


def store_state_in_bf16(
    inner: optax.GradientTransformation, seed: int | None
) -> optax.GradientTransformation:
    """`inner` with a state in bf16; integers, such as counters, stay as they are.

    The seed of stochastic rounding is the same on every mesh; None rounds to nearest.
    """

    def init(params: Any) -> StoredState:
        return StoredState(jnp.zeros((), jnp.int32), _to_bf16(inner.init(params), None))

    def update(gradients: Any, stored: StoredState, params: Any = None) -> tuple[Any, StoredState]:
        widened = lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf
        in_float32 = jax.tree.map(widened, stored.state)
        updates, state = inner.update(gradients, in_float32, params)
        key = None if seed is None else jax.random.fold_in(jax.random.key(seed), stored.steps)
        steps = optax.safe_increment(stored.steps)
        return updates, StoredState(steps, _to_bf16(state, key))

    return optax.GradientTransformation(init, update)


def stochastic_round(x: jax.Array, key: jax.Array) -> jax.Array:
    """A float32 array in bf16, each number rounded up or down at random, right in the mean."""
    meshless = jax.sharding.get_abstract_mesh().empty
    spec = None if meshless else jax.typeof(x).sharding.spec
    noise = jax.random.bits(key, x.shape, jnp.uint32, out_sharding=spec) >> LOW_BITS
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + noise
    rounded = jax.lax.bitcast_convert_type(bits >> LOW_BITS << LOW_BITS, jnp.float32)
    return jnp.where(jnp.isfinite(x), rounded, x).astype(jnp.bfloat16)


def _to_bf16(state: Any, key: jax.Array | None) -> Any:
    leaves, structure = jax.tree.flatten(state)
    for i, leaf in enumerate(leaves):
        if leaf.dtype != jnp.float32:
            continue
        if key is None:
            leaves[i] = leaf.astype(jnp.bfloat16)
        else:
            leaves[i] = stochastic_round(leaf, jax.random.fold_in(key, i))
    return jax.tree.unflatten(structure, leaves)
