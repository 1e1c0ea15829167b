"""Gradients as partial sums per device, so that a loop over microbatches sums over devices once.

With explicit shardings a weight that is marked `reduced` over some mesh axes gets a gradient that
is `unreduced` over them: one partial sum per device. Inside a `shard_map` a weight that is marked
varying over some axes gets a gradient that is summed over them.

Both sums are made in the format in which the gradient is computed, or in float32
(`in_format`): a sum of n numbers in bfloat16 stands still once it is 256 times what is added.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import REPLICAS, Dims, named
from scaling.models.execution import Execution, axes_of, spec_of
from scaling.models.initializers import is_matrix, is_variable

MARKED = (*REPLICAS, "stage")  # the axes that any run marks weights `reduced` over


def mark_reduced(params: Any, axes: Iterable[str]) -> Any:
    """Parameters whose gradients arrive as one partial sum per device of `axes`.

    Matrices only, and only the axes that do not shard the parameter.
    """

    def mark(param: nnx.Variable) -> nnx.Variable:
        sharding = jax.typeof(param[...]).sharding
        replicas = {axis for axis in axes if sharding.mesh.shape.get(axis, 1) > 1}
        replicas -= axes_of(param[...])
        if not is_matrix(param) or not replicas:
            return param
        partitions = sharding.spec.partitions
        return param.replace(reshard(param[...], P(*partitions, reduced=replicas)))

    return jax.tree.map(mark, params, is_leaf=is_variable)


Place = Callable[[jax.Array], jax.Array]


def in_format(execution: Execution, dtype: Any, w: jax.Array, place: Place) -> jax.Array:
    """`place` of a weight in format `dtype`; its gradient is reduced as `Execution.reduce` says.

    Args:
        w: a stored weight, or one that is gathered once per step.
        place: moves the weight to the devices that multiply by it; linear.
    """
    if execution.reduce == "bf16":
        return place(w.astype(dtype))
    return _reduced_in_float32(place, jnp.dtype(dtype), w)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _reduced_in_float32(place: Place, dtype: jnp.dtype, w: jax.Array) -> jax.Array:
    return place(w.astype(dtype))


def _transposed_in_float32(
    place: Place, dtype: jnp.dtype, w: jax.Array, gradient: jax.Array
) -> tuple[jax.Array]:
    """The sums over devices that are the transpose of `place`, of a float32 gradient.

    `jax.linear_transpose` does not know weights that are marked `reduced` (0.10.2 and 0.11.2, tried
    2026-11-28; no issue known).
    """
    _, transpose = jax.vjp(place, w.astype(jnp.float32))
    (total,) = transpose(gradient.astype(jnp.float32))
    return (total.astype(w.dtype),)


_reduced_in_float32.defvjp(
    lambda place, dtype, w: (place(w.astype(dtype)), w), _transposed_in_float32
)


def all_gather_weight(
    execution: Execution,
    w: jax.Array,
    dims: Dims,
    token_axes: Sequence[str],
    jointly: Sequence[str] = MARKED,
    dtype: Any = None,
) -> jax.Array:
    """A stored weight inside a `shard_map`, all-gathered along "embed".

    As it is stored if gathered already (`Execution.gathers_weights_once`). Before the gather the
    weight is marked varying over the replicas, so that its gradient is reduce-scattered
    first, and only the shard is summed over them.

    Args:
        w, dims: this device's shard and the weight's logical dimensions.
        token_axes: mesh axes that shard the tokens it is multiplied with.
        jointly: axes over which the gradient is summed in one all-reduce.
        dtype: format in which it is gathered; None: the compute format.
    """
    rules = execution.rules
    own = rules.gathered_axes(*dims)
    gathered = () if execution.gathers_weights_once else own
    sharded = named(rules.spec(*dims)) - {*own} | {*gathered}
    others = tuple(axis for axis in token_axes if axis not in sharded)

    def gather(w: jax.Array) -> jax.Array:
        together = tuple(axis for axis in others if axis in jointly)
        for group in filter(None, (together, *((a,) for a in others if a not in jointly))):
            w = jax.lax.pcast(w, group, to="varying")
        axis = dims.index("embed")
        return jax.lax.all_gather(w, gathered, axis=axis, tiled=True) if gathered else w

    return in_format(execution, dtype or execution.dtype, w, gather)


def zeros_like(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Zeros of a shape, format and sharding, perhaps of partial sums."""
    return jnp.zeros(leaf.shape, leaf.dtype, out_sharding=leaf.sharding)


def psum_replicas(gradient: jax.Array) -> jax.Array:
    """The sum over the replicas of a gradient's partial sums."""
    return reshard(gradient, P(*spec_of(gradient).partitions))
