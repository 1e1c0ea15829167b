"""Dispatch of tokens to rows of their experts and back, in fixed buffers.

    with a capacity factor  rows of the device's own tokens, [experts, capacity]: they are sent
    else                    rows of the device's own experts, sorted by expert, for tokens of all
                            devices along `expert`: those are gathered

Each of the T * K assignments gets a row, or none. Then

    dispatch   rows  = x[token of the row], 0 where a row is empty
    combine    y     = sum over the K rows of a token, 0 for those that were dropped

are each other's transposes, so both gradients are gathers and no row is added up twice.
Where there is no room for all, a token's better choices go first, then earlier tokens
(in the device's order: `scaling.models.attention_kernels.zigzag`).
"""

# Dims: T tokens, K assignments of each, A = K * T (all first choices, then all second ones ...),
# R rows of the buffer, D model, E experts

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class RoutingIndices(NamedTuple):
    """A one-to-one map between assignments and rows; some of either may have no partner."""

    assignment_R: jax.Array  # int32; A for an empty row
    row_KT: jax.Array  # int32; R for a dropped assignment

    @property
    def kept(self) -> jax.Array:
        """int32 scalar: number of assignments that have a row."""
        return (self.row_KT < self.assignment_R.size).sum()

    @property
    def is_used_R(self) -> jax.Array:
        """True where a row has an assignment: bool [R]."""
        return self.assignment_R < self.row_KT.size


def padded_indices(experts_TK: jax.Array, experts: int, capacity: int) -> RoutingIndices:
    """Rows for all assignments: `capacity` rows for each of E experts.

    `experts_TK` are the experts of each token, best first; number E has no row.
    """
    expert_A = experts_TK.T.reshape(-1)
    order_A = jnp.argsort(expert_A, stable=True)
    counts_E = jnp.zeros(experts, jnp.int32).at[expert_A].add(1, mode="drop")
    sorted_A = expert_A[order_A]
    rank_A = jnp.arange(expert_A.size) - (jnp.cumsum(counts_E) - counts_E)[sorted_A]
    rows = experts * capacity
    has_row_A = (rank_A < capacity) & (sorted_A < experts)
    row_A = jnp.where(has_row_A, sorted_A * capacity + rank_A, rows)
    return _both_ways(order_A, row_A, rows, experts_TK.shape[::-1])


def sorted_indices(
    experts_TK: jax.Array, experts: int, rows: int
) -> tuple[RoutingIndices, jax.Array]:
    """Rows for the assignments to experts 0 to E - 1, by expert, and the rows of each: int32 [E].

    Other numbers are experts of other devices.
    """
    expert_A = experts_TK.T.reshape(-1)
    is_own_A = (expert_A >= 0) & (expert_A < experts)
    is_kept_A = is_own_A & (jnp.cumsum(is_own_A) <= rows)
    key_A = jnp.where(is_kept_A, expert_A, experts)
    order_A = jnp.argsort(key_A, stable=True)
    row_A = jnp.where(key_A[order_A] < experts, jnp.arange(key_A.size), rows)
    sizes_E = jnp.zeros(experts, jnp.int32).at[key_A].add(1, mode="drop")
    return _both_ways(order_A, row_A, rows, experts_TK.shape[::-1]), sizes_E


@jax.custom_vjp
def dispatch(x_TD: jax.Array, idx: RoutingIndices) -> jax.Array:
    """Tokens in the rows of their assignments: [R, D]. Gradient: `combine`."""
    chex.assert_rank(x_TD, 2)
    tokens = x_TD.shape[0]
    token_R = jnp.where(idx.is_used_R, idx.assignment_R % tokens, 0)
    return jnp.where(idx.is_used_R[:, None], x_TD[token_R], 0)


@jax.custom_vjp
def combine(rows_RD: jax.Array, idx: RoutingIndices) -> jax.Array:
    """The sum of each token's rows, added in float32: [T, D]. Gradient: `dispatch`."""
    chex.assert_shape(rows_RD, (*idx.assignment_R.shape, None))
    is_kept_KT = idx.row_KT < rows_RD.shape[0]
    picked_KTD = rows_RD[jnp.where(is_kept_KT, idx.row_KT, 0)].astype(jnp.float32)
    sum_TD = jnp.where(is_kept_KT[:, :, None], picked_KTD, 0).sum(axis=0)
    return sum_TD.astype(rows_RD.dtype)


def weights_of_rows(weights_TK: jax.Array, idx: RoutingIndices) -> jax.Array:
    """The weight of each row's assignment, 0 for empty ones: float32 [R]."""
    weights_A = weights_TK.T.reshape(-1)
    picked_R = weights_A[jnp.where(idx.is_used_R, idx.assignment_R, 0)]
    return jnp.where(idx.is_used_R, picked_R, 0)


def all_to_all(rows: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """All-to-all over `axes`: part p of the first dimension goes to device p. Its own inverse."""
    return jax.lax.all_to_all(rows, axes, 0, 0, tiled=True) if axes else rows


def all_gather(y: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """The first dimensions of all devices along `axes`, one after the other."""
    return jax.lax.all_gather(y, axes, axis=0, tiled=True) if axes else y


def reduce_scatter(y: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """This device's part of the first dimension, summed over the devices along `axes`."""
    return jax.lax.psum_scatter(y, axes, scatter_dimension=0, tiled=True) if axes else y


def _both_ways(
    order_A: jax.Array, row_A: jax.Array, rows: int, shape: tuple[int, ...]
) -> RoutingIndices:
    """The indices of both directions: the assignments `order_A` have the rows `row_A`."""
    order_A, row_A = order_A.astype(jnp.int32), row_A.astype(jnp.int32)
    empty_R = jnp.full(rows, order_A.size, jnp.int32)
    assignment_R = empty_R.at[row_A].set(order_A, mode="drop")
    row_KT = jnp.zeros_like(row_A).at[order_A].set(row_A).reshape(shape)
    return RoutingIndices(assignment_R, row_KT)


dispatch.defvjp(
    lambda x_TD, idx: (dispatch(x_TD, idx), idx),
    lambda idx, rows_RD: (combine(rows_RD, idx), None),
)
combine.defvjp(
    lambda rows_RD, idx: (combine(rows_RD, idx), idx),
    lambda idx, y_TD: (dispatch(y_TD, idx), None),
)
