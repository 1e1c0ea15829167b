"""The load of experts in a training step: what is logged of it, and the bias that evens it out.

The selection bias moves after the step, by the load of all tokens of all its microbatches and
devices, outside the gradient (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
"""

# Dims: L layers with experts, E experts

import jax
from flax import nnx

from scaling.models.experts import Experts
from scaling.models.moe.routing import Routing, updated_selection_bias
from scaling.models.transformer import Transformer
from scaling.training.monitor.layer_norms import in_layer_order


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
