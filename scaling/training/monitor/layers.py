"""What is measured of each layer inside the step: its gradients' norm, and its experts' load.

The load also moves the experts' selection bias after the step: that of all tokens of all its
microbatches and devices, outside the gradient (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
"""

# Dims: L layers (of routing those with experts), E experts

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.accounting.matrices import layer_stacks
from scaling.models.experts import Experts
from scaling.models.moe.routing import Routing, updated_selection_bias
from scaling.models.pipeline.schedule import layer_order
from scaling.models.transformer import Transformer


def layer_gradient_norms(params: Transformer, gradients: Transformer) -> jax.Array:
    """The 2-norm of all gradients of each layer, before clipping, from the first one: float32 [L].

    `params` say how the layers are stored, `gradients` are like them.
    """

    def squares(params: Any, gradients: Any) -> jax.Array:
        """Sums of squares of a stack's rows, on all devices: [L]; 0 where all is frozen."""
        total_L = jnp.zeros(len(jax.tree.leaves(params)[0]), jnp.float32)
        for leaf_L in jax.tree.leaves(gradients):
            squares_L = jnp.square(leaf_L.astype(jnp.float32)).sum(axis=range(1, leaf_L.ndim))
            total_L = total_L + reshard(squares_L, P())
        return total_L

    pairs = zip(params.stacks, gradients.stacks, strict=True)
    norms_L = jnp.sqrt(jnp.concatenate([in_layer_order(params, squares(*pair)) for pair in pairs]))
    numbers = [i for stack in layer_stacks(params.config) for i in stack.layers]
    return norms_L if numbers == sorted(numbers) else norms_L[np.argsort(numbers)]


def in_layer_order(params: Transformer, x_L: jax.Array) -> jax.Array:
    """Rows of a stack as `params` stores it, from the first layer, whole on every device."""
    x_L, execution = reshard(x_L, P()), params.execution
    if not execution.rules.axes("layers"):
        return x_L
    order = layer_order(len(x_L), execution.rules.mesh.stage, execution.virtual_stages)
    return x_L[np.argsort(order)]


def mean_of_losses(routing: Routing | None, microbatches: int) -> Routing | None:
    """Sums over microbatches with the losses divided by their number; load and drops stay sums."""
    if routing is None:
        return None
    means = routing.aux_loss / microbatches, routing.z_loss / microbatches
    return Routing(routing.load_E, routing.dropped, *means)


def routing_metrics(params: Transformer, routing: Routing | None) -> dict[str, jax.Array]:
    """Metrics of the routing over the tokens of a step; {} without experts.

    `expert_load` [L, E]: each expert's load over the mean of its layer; `skew`: the largest of
    them; `dropped`: share of assignments without room; `aux_loss`, `z_loss`: without their weights.
    """
    if routing is None:
        return {}
    load_LE = routing.load_E / routing.load_E.mean(axis=-1, keepdims=True)
    return {
        "aux_loss": routing.aux_loss.mean(),
        "z_loss": routing.z_loss.mean(),
        "dropped": routing.dropped.sum() / routing.load_E.sum(),
        "skew": load_LE.max(),
        "expert_load": in_layer_order(params, load_LE),
    }


def with_updated_bias(params: Transformer, load_LE: jax.Array) -> Transformer:
    """Parameters whose selection biases have moved against the load, if there are any."""
    moe = params.config.moe
    if moe is None or not moe.bias_update_rate:
        return params
    params = jax.tree.map(lambda leaf: leaf, params)  # a copy: the argument stays as it is
    experts = params.layers.mlp
    assert isinstance(experts, Experts)
    if experts.router_bias_E is None:  # frozen
        return params
    bias_LE = updated_selection_bias(experts.router_bias_E[...], load_LE, moe.bias_update_rate)
    experts.router_bias_E = nnx.Param(bias_LE, dims=experts.router_bias_E.dims)
    return params
