"""The experts' MLPs on the rows that a device has received, each expert on its own rows.

    dropless           rows sorted by expert, `jax.lax.ragged_dot`: empty rows are left out where
                       the backend has such a kernel; XLA's fallback takes all rows to all experts
    capacity factor    batched products of equal groups, empty rows included

A row's weight is multiplied to its hidden units, before the last product: so no gradient needs the
results, and they are neither kept nor computed again.
"""

# Dims: T tokens, R rows, P devices along expert, E experts of this device, C rows of one group,
# D model, F hidden units of an expert (those of this device)

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.mlp import ACTIVATIONS
from scaling.models.moe.dispatch import (
    collect,
    expert_of_rows,
    sorted_places,
    spread,
    weights_of_rows,
)
from scaling.models.partial_sums import differing

DIMS: dict[str, tuple[str | None, ...]] = {  # logical dimensions of the weights, by name
    "router": ("embed", None),
    "up": ("experts", "embed", "mlp"),
    "gate": ("experts", "embed", "mlp"),
    "down": ("experts", "mlp", "embed"),
    "shared_up": ("embed", "mlp"),
    "shared_gate": ("embed", "mlp"),
    "shared_down": ("mlp", "embed"),
}
Weights = dict[str, jax.Array]  # by name of DIMS, as stored on this device; and "bias"
Product = Callable[[jax.Array, jax.Array], jax.Array]  # rows, whole weight


def ragged_experts(
    config: ModelConfig,
    execution: Execution,
    rows_RD: jax.Array,
    weights_R: jax.Array,
    counts_PE: jax.Array,
    weights: Weights,
) -> jax.Array:
    """Received rows through their experts.

    Args:
        config: the model.
        execution: its execution.
        rows_RD: P groups by sender, each sorted by expert, empty rows last.
        weights_R: of the rows, float32.
        counts_PE: int32, rows of each sender for each expert.
        weights: see `Weights`.
    """
    devices, local = counts_PE.shape
    sizes_E = counts_PE.sum(axis=0)
    is_used_R = jnp.arange(rows_RD.shape[0]) < sizes_E.sum()
    product = functools.partial(
        jax.lax.ragged_dot,
        group_sizes=sizes_E,
        precision=execution.precision,
        preferred_element_type=execution.dtype,
    )
    run = functools.partial(_mlp, config, execution, weights, product)
    if devices == 1:  # sorted by expert already
        return run(rows_RD, weights_R, is_used_R)
    expert_R = expert_of_rows(counts_PE, rows_RD.shape[0] // devices)
    by_expert = sorted_places(expert_R, local)
    sorted_R = weights_of_rows(weights_R[:, None], by_expert)
    return collect(run(spread(rows_RD, by_expert), sorted_R, is_used_R), by_expert)


def padded_experts(
    config: ModelConfig,
    execution: Execution,
    rows_RD: jax.Array,
    weights_R: jax.Array,
    weights: Weights,
) -> jax.Array:
    """Received rows through their experts; P groups by sender, in each E groups of C rows."""
    devices, local = execution.rules.mesh.expert, weights["up"].shape[0]
    product = functools.partial(
        jnp.einsum,
        "ecd,edf->ecf",
        precision=execution.precision,
        preferred_element_type=execution.dtype,
    )

    def by_expert(y_RX: jax.Array) -> jax.Array:
        y_PECX = y_RX.reshape(devices, local, -1, y_RX.shape[-1])
        return y_PECX.swapaxes(0, 1).reshape(local, -1, y_RX.shape[-1])

    weights_EC = by_expert(weights_R[:, None])[:, :, 0]
    out_ECD = _mlp(config, execution, weights, product, by_expert(rows_RD), weights_EC)
    out_EPCD = out_ECD.reshape(local, devices, -1, out_ECD.shape[-1])
    return out_EPCD.swapaxes(0, 1).reshape(rows_RD.shape)


def shared_experts(
    config: ModelConfig, execution: Execution, x_TD: jax.Array, weights: Weights
) -> jax.Array:
    """The experts that every token passes, partial over tensor."""
    product = functools.partial(
        jnp.dot, precision=execution.precision, preferred_element_type=execution.dtype
    )
    return _mlp(config, execution, weights, product, x_TD, prefix="shared_")


def whole(execution: Execution, w: jax.Array, name: str, met: tuple[str, ...]) -> jax.Array:
    """A stored weight in compute format (the router: float32), gathered over fsdp; or one that is
    whole already (`Execution.gathers_once`).

    `met` are the mesh axes that cut the tokens it meets. Before the gather it is declared different
    along those that do not cut the weight itself, so that its gradient is summed over them as a
    shard, after the reduce-scatter.
    """
    rules, dims = execution.rules, DIMS[name]
    w = w if name == "router" else w.astype(execution.dtype)
    gathered = () if execution.gathers_weights_once else rules.axes("embed")
    cuts = {*gathered, *(axis for dim in dims if dim != "embed" for axis in rules.axes(dim))}
    w = differing(w, [axis for axis in met if axis not in cuts])
    return jax.lax.all_gather(w, gathered, axis=dims.index("embed"), tiled=True) if gathered else w


def gathered_again(execution: Execution, multiply: Product) -> Product:
    """A product that does not keep the weight that it gathers (see `Execution.project`)."""
    return jax.checkpoint(multiply, prevent_cse=False) if execution.remat == "none" else multiply


def _mlp(
    config: ModelConfig,
    execution: Execution,
    weights: Weights,
    product: Product,
    x: jax.Array,
    row_weights: jax.Array | None = None,
    is_used_R: jax.Array | None = None,
    prefix: str = "",
) -> jax.Array:
    """(act(x gate) * (x up) * weight) down, row by row; rows that are not used count as zero."""
    activate, gated = ACTIVATIONS[config.mlp], config.mlp == "swiglu"
    met = (*execution.rules.axes("batch"), *execution.rules.axes("sequence"))

    def times(x: jax.Array, name: str) -> jax.Array:
        multiply = lambda x, w: product(x, whole(execution, w, prefix + name, met))
        return gathered_again(execution, multiply)(x, weights[prefix + name])

    def hidden(up: jax.Array, gate: jax.Array | None) -> jax.Array:
        h = activate(up) if gate is None else activate(gate) * up
        if row_weights is not None:
            h = (h.astype(jnp.float32) * row_weights[..., None]).astype(execution.dtype)
        return h if is_used_R is None else jnp.where(is_used_R[:, None], h, 0)

    up = checkpoint_name(times(x, "up"), "mlp_up")
    gate = checkpoint_name(times(x, "gate"), "mlp_gate") if gated else None
    return times(jax.checkpoint(hidden, prevent_cse=False)(up, gate), "down")
