"""Gradients as partial sums per device, so that a loop over microbatches sums over devices once.

A weight that is declared `reduced` over some mesh axes gets a gradient that is `unreduced` over
them: each device's own sum. `whole` adds these up.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import REPLICAS
from scaling.models.initializers import is_matrix
from scaling.models.sharding import axes_of

MARKED = (*REPLICAS, "stage")  # of the axes that `partial_over` is called with, those of every run


def partial_over(params: Any, axes: Iterable[str]) -> Any:
    """Parameters whose gradients arrive as one partial sum for each device of `axes` (matrices
    only): of those among them that do not cut the parameter."""

    def mark(param: nnx.Variable) -> nnx.Variable:
        sharding = jax.typeof(param[...]).sharding
        replicas = {axis for axis in axes if sharding.mesh.shape.get(axis, 1) > 1}
        replicas -= axes_of(param[...])
        if not is_matrix(param) or not replicas:
            return param
        partitions = sharding.spec.partitions
        return param.replace(reshard(param[...], P(*partitions, reduced=replicas)))

    return jax.tree.map(mark, params, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def differing(weight: jax.Array, axes: Iterable[str], marked: Sequence[str] = MARKED) -> jax.Array:
    """A weight inside a `shard_map`, declared different along `axes`: its gradient is summed over
    them, in one sum over those that may be marked partial, whether they are or not."""
    axes = tuple(axes)
    first = tuple(axis for axis in axes if axis in marked)
    for together in filter(None, (first, *((a,) for a in axes if a not in marked))):
        weight = jax.lax.pcast(weight, together, to="varying")
    return weight


def zeros_like(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Zeros of a shape, format and sharding, perhaps of partial sums."""
    return jnp.zeros(leaf.shape, leaf.dtype, out_sharding=leaf.sharding)


def whole(gradient: jax.Array) -> jax.Array:
    """The sum over the replicas of a gradient's partial sums."""
    return reshard(gradient, P(*jax.typeof(gradient).sharding.spec.partitions))
