"""The experts' MLPs on sorted rows of tokens by kernels of our own, forward and backward.

    y[token] = sum over its rows of (act(x gate) * (x up) * weight) down

No pass goes over the buffer of all rows, which an even load may fill to a quarter
(`models.accounting.expert_buffers`): tokens are read where they stand, the activation and its
gradient are the ends of products, and tiles without rows are skipped
(`scaling.models.moe.triton_products`).

Saved for the backward pass, by the names of `scaling.models.remat`: the tokens, and x up and x gate
of the first `kept_rows`. Those of further rows, which an even load does not have, are computed
again: so that the copies of saved arrays are as long as what is in use.
"""

# Dims: S tokens, R rows, K assignments of a token, E experts, D model, F hidden units

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from scaling.models.mlp import ACTIVATIONS, gated_units
from scaling.models.moe import triton_products as kernels
from scaling.models.moe.triton_tiles import BLOCKS, Load, Rows

NAMES = ("mlp_up", "mlp_gate")


@dataclass(frozen=True)
class GroupedMlps:
    """Static options: kind of activation, load, and rows that are kept."""

    kind: str
    load: Load
    kept: int

    def units(self, up: jax.Array, gate: jax.Array | None = None) -> jax.Array:
        """The hidden units, elementwise."""
        return ACTIVATIONS[self.kind](up) if gate is None else gated_units(self.kind)(gate, up)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def grouped_mlps(
    how: GroupedMlps,
    x_SD: jax.Array,
    rows: Rows,
    row_KS: jax.Array,
    weights: tuple[jax.Array, ...],
    biases: tuple[jax.Array, ...],
    down_EFD: jax.Array,
) -> jax.Array:
    """The sums of the tokens' experts [S, D].

    Args:
        row_KS: the rows of each token; R and more for none.
        weights: up and, where there is one, gate: [E, D, F].
        biases: theirs, [E, F]; or none.
    """
    return _forward(how, x_SD, rows, row_KS, weights, biases, down_EFD)[0]


def _forward(how: GroupedMlps, x_SD: jax.Array, rows: Rows, *others: Any) -> tuple:
    row_KS, weights, biases, down_EFD = others
    x_SD = checkpoint_name(x_SD, "expert_input")
    part = (0, how.kept)
    *pre, h_RF = kernels.hidden_units(how.load, how.units, x_SD, rows, weights, biases, part)
    pre = [checkpoint_name(y, name) for y, name in zip(pre, NAMES, strict=False)]
    y_RD = kernels.products(how.load, [(h_RF, down_EFD)], rows)
    y_SD = kernels.combine(how.load, y_RD, row_KS)
    return y_SD, (x_SD, rows, row_KS, weights, biases, down_EFD, pre)


def _backward(how: GroupedMlps, saved: tuple, dy_SD: jax.Array) -> tuple:
    x_SD, rows, row_KS, weights, biases, down_EFD, pre = saved
    load, total = how.load, rows.source_R.size
    parts = [[y] for y in pre]
    if how.kept < total:
        part, again = (how.kept, total), True
        rest = kernels.hidden_units(load, how.units, x_SD, rows, weights, biases, part, again)
        parts = [[y, more] for y, more in zip(pre, rest, strict=True)]
    dpre, h_RF, dweight_R = kernels.hidden_gradients(load, how.units, dy_SD, rows, down_EFD, parts)
    dx_RD = kernels.products(load, list(zip(dpre, weights, strict=True)), rows, transposed=True)
    sums = lambda x, dy, *by_source: kernels.weights_gradient(load, x, dy, rows, by_source)
    ones = jnp.ones_like(dpre[0][:, : BLOCKS[-1]])  # as few columns as a kernel takes
    total_of = functools.partial(kernels.weights_gradient, load, ones, rows=rows, dtype=jnp.float32)
    return (
        kernels.combine(load, dx_RD, row_KS),
        Rows(None, dweight_R, None),  # type: ignore[arg-type]
        None,
        tuple(sums(x_SD, dy, True, False) for dy in dpre),
        tuple(total_of(dy=dy)[:, 0].astype(b.dtype) for dy, b in zip(dpre, biases, strict=False)),
        sums(h_RF, dy_SD, False, True),
    )


grouped_mlps.defvjp(_forward, _backward)
