"""The experts' MLPs on the rows that a device has received, each expert on its own rows.

    capacity factor    batched products of equal groups, empty rows included
    else               rows sorted by expert, grouped products (`models/moe/grouped_matmul.py`),
                       which stay in bf16 under precision.compute "fp8"

A row's weight multiplies its hidden units, before the last product: so no gradient needs the
results, and they are neither saved nor recomputed.
"""

# Dims: T tokens, R rows, P devices along expert, E experts of this device, C rows of one group,
# D model, F hidden units of an expert (those of this device)

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from scaling.models import float8
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.mlp import ACTIVATIONS
from scaling.models.moe.grouped_matmul import grouped_matmul
from scaling.models.partial_sums import all_gather_weight
from scaling.models.remat import regathered

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
Product = Callable[[jax.Array, jax.Array], jax.Array]  # rows, gathered weight


def grouped_experts(
    config: ModelConfig,
    execution: Execution,
    rows_RD: jax.Array,
    weights_R: jax.Array,
    sizes_E: jax.Array,
    even_rows: int,
    weights: Weights,
) -> jax.Array:
    """The experts' results for rows sorted by expert: [R, D], not defined for unused rows.

    Args:
        weights_R: of the rows, float32.
        sizes_E: int32, rows of each of this device's experts; all others are unused.
        even_rows: rows in use under an even load.
    """
    product = lambda x, w: grouped_matmul(
        x, w, sizes_E, execution.grouped_kernel, even_rows, execution.precision
    )
    is_used_R = jnp.arange(rows_RD.shape[0]) < sizes_E.sum()
    return _mlp(config, execution, weights, product, rows_RD, weights_R, is_used_R)


def padded_experts(
    config: ModelConfig,
    execution: Execution,
    rows_RD: jax.Array,
    weights_R: jax.Array,
    weights: Weights,
) -> jax.Array:
    """The same with a capacity factor: rows are P groups by sender, in each E groups of C rows."""
    devices, local = execution.rules.mesh.expert, weights["up"].shape[0]
    product = _product(execution, "ecd,edf->ecf")

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
    """The result of the experts that every token passes: [T, D], partial sums over tensor."""
    product = _product(execution, "td,df->tf")
    return _mlp(config, execution, weights, product, x_TD, prefix="shared_")


def _product(execution: Execution, equation: str) -> Product:
    """Products of this device's rows and weights; in 8 bits under "fp8"."""
    if execution.compute == "fp8":
        return functools.partial(float8.local_product, equation)
    return functools.partial(
        jnp.einsum, equation, precision=execution.precision, preferred_element_type=execution.dtype
    )


def gather_expert_weight(
    execution: Execution, x: jax.Array, w: jax.Array, name: str, token_axes: tuple[str, ...]
) -> jax.Array:
    """The stored weight `name` of `DIMS` in compute format (the router: float32), all-gathered for
    a product with `x`."""
    dtype = jnp.float32 if name == "router" else None
    after = x if execution.remat == "none" and execution.regathers_per_iteration else None
    return all_gather_weight(execution, w, DIMS[name], token_axes, dtype=dtype, after=after)


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
    """(act(x gate) * (x up) * weight) down, row by row; unused rows count as zero.

    They are masked before anything is computed with them: they may not be numbers.
    """
    activate, gated = ACTIVATIONS[config.mlp], config.mlp == "swiglu"
    token_axes = (*execution.rules.axes("batch"), *execution.rules.axes("sequence"))

    def times(x: jax.Array, name: str) -> jax.Array:
        multiply = lambda x, w: product(
            x, gather_expert_weight(execution, x, w, prefix + name, token_axes)
        )
        return regathered(execution, multiply)(x, weights[prefix + name])

    def hidden(up: jax.Array, gate: jax.Array | None) -> jax.Array:
        if is_used_R is not None:
            used = is_used_R[:, None]
            up, gate = jnp.where(used, up, 0), None if gate is None else jnp.where(used, gate, 0)
        h = activate(up) if gate is None else activate(gate) * up
        if row_weights is not None:
            h = (h.astype(jnp.float32) * row_weights[..., None]).astype(execution.dtype)
        return h

    if row_weights is not None:
        x = checkpoint_name(x, "expert_input")
    up = checkpoint_name(times(x, "up"), "mlp_up")
    gate = checkpoint_name(times(x, "gate"), "mlp_gate") if gated else None
    return times(jax.checkpoint(hidden, prevent_cse=False)(up, gate), "down")
