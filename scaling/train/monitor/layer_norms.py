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
    stacks = [stack for stack in (gradients.dense_layers, gradients.layers) if stack is not None]
    squares_L = jnp.concatenate([_squares(stack) for stack in stacks])
    execution = params.execution
    if not execution.rules.axes("layers"):
        return jnp.sqrt(squares_L)
    stages = execution.rules.mesh.stage
    order = layer_order(params.config.n_layers, stages, execution.virtual_stages)
    return jnp.sqrt(squares_L[np.argsort(order)])


def _squares(stack: Any) -> jax.Array:
    """Sums of squares of a stack's rows, on all devices: [L]."""
    leaves = [leaf_L.astype(jnp.float32) for leaf_L in jax.tree.leaves(stack)]
    sums = [jnp.square(leaf_L).sum(axis=range(1, leaf_L.ndim)) for leaf_L in leaves]
    return reshard(sum(sums[1:], sums[0]), P())
