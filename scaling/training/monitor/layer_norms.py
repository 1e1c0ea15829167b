"""Norms of the gradients of each layer, computed inside the step."""

# Dims: L layers

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.pipeline.schedule import layer_order
from scaling.models.transformer import Transformer


def layer_gradient_norms(params: Transformer, gradients: Transformer) -> jax.Array:
    """The 2-norm of all gradients of each layer, before clipping, from the first one: float32 [L].

    `params` say how the layers are stored, `gradients` are like them.
    """
    stacks = ((params.dense_layers, gradients.dense_layers), (params.layers, gradients.layers))
    squares_L = jnp.concatenate([_squares(*pair) for pair in stacks if pair[0] is not None])
    return jnp.sqrt(in_layer_order(params, squares_L))


def in_layer_order(params: Transformer, x_L: jax.Array) -> jax.Array:
    """Rows of layers as `params` stores them, from the first one, whole on every device."""
    x_L, execution = reshard(x_L, P()), params.execution
    if not execution.rules.axes("layers"):
        return x_L
    order = layer_order(len(x_L), execution.rules.mesh.stage, execution.virtual_stages)
    return x_L[np.argsort(order)]


def _squares(params: Any, gradients: Any) -> jax.Array:
    """Sums of squares of a stack's rows, on all devices: [L]; 0 where all is frozen."""
    total_L = jnp.zeros(len(jax.tree.leaves(params)[0]), jnp.float32)
    for leaf_L in jax.tree.leaves(gradients):
        squares_L = jnp.square(leaf_L.astype(jnp.float32)).sum(axis=range(1, leaf_L.ndim))
        total_L = total_L + reshard(squares_L, P())
    return total_L
