"""Gradients as partial sums per device, so that a loop over microbatches sums over devices once.

With explicit shardings a weight that is marked `reduced` over some mesh axes gets a gradient that
is `unreduced` over them: one partial sum per device. Inside a `shard_map` a weight that is marked
varying over some axes gets a gradient that is summed over them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution, spec_of
from scaling.models.initializers import is_matrix
from scaling.models.sharding import axes_of

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

    return jax.tree.map(mark, params, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def all_gather_weight(
    execution: Execution,
    w: jax.Array,
    dims: tuple[str | None, ...],
    token_axes: Sequence[str],
    jointly: Sequence[str] = MARKED,
) -> jax.Array:
    """A stored weight inside a `shard_map`, all-gathered over fsdp along "embed".

    As it is if gathered already (`Execution.gathers_weights_once`). Before the gather the weight is
    marked varying over the replicas, so that its gradient is reduce-scattered over fsdp first, and
    only the shard is summed over them.

    Args:
        w, dims: this device's shard, in compute format, and the weight's logical dimensions.
        token_axes: mesh axes that shard the tokens it is multiplied with.
        jointly: axes over which the gradient is summed in one all-reduce.
    """
    rules = execution.rules
    fsdp = () if execution.gathers_weights_once else rules.axes("embed")
    sharded = {*fsdp, *(axis for dim in dims if dim != "embed" for axis in rules.axes(dim))}
    w = _mark_varying(w, tuple(axis for axis in token_axes if axis not in sharded), jointly)
    return jax.lax.all_gather(w, fsdp, axis=dims.index("embed"), tiled=True) if fsdp else w


def _mark_varying(w: jax.Array, axes: tuple[str, ...], jointly: Sequence[str]) -> jax.Array:
    together = tuple(axis for axis in axes if axis in jointly)
    for group in filter(None, (together, *((a,) for a in axes if a not in jointly))):
        w = jax.lax.pcast(w, group, to="varying")
    return w


def zeros_like(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Zeros of a shape, format and sharding, perhaps of partial sums."""
    return jnp.zeros(leaf.shape, leaf.dtype, out_sharding=leaf.sharding)


def psum_replicas(gradient: jax.Array) -> jax.Array:
    """The sum over the replicas of a gradient's partial sums."""
    return reshard(gradient, P(*spec_of(gradient).partitions))
