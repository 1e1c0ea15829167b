"""Tokens to their experts' devices and back: fixed buffers, `all_to_all` over `expert`.

Each of the T * K assignments of a device gets a row of a buffer [groups, capacity, D], in groups
by expert (with a capacity factor) or by device (dropless, sorted by expert inside). Then

    spread   rows  = x[token of the row], 0 where a row is empty
    collect  y     = sum over the K rows of a token, 0 for those that were dropped

are each other's transposes, so both gradients are gathers and no row is added up twice.
Where there is no room for all, a token's better choices go first, then earlier tokens
(as the device holds them: `scaling.models.attention_kernels.zigzag`).
"""

# Dims: T tokens, K assignments of each, A = K * T (all first choices, then all second ones ...),
# R rows of the buffer, D model, E experts

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Places(NamedTuple):
    """A one-to-one map between assignments and rows; neither side need be used up."""

    assignment_R: jax.Array  # int32; A for an empty row
    row_KT: jax.Array  # int32; R for a dropped assignment

    @property
    def kept(self) -> jax.Array:
        """int32 scalar: assignments that have a row."""
        return (self.row_KT < self.assignment_R.size).sum()

    @property
    def is_used_R(self) -> jax.Array:
        """Whether a row holds something."""
        return self.assignment_R < self.row_KT.size


def places(experts_TK: jax.Array, experts: int, groups: int, capacity: int) -> Places:
    """Rows for all assignments: `experts` in equal groups with `capacity` rows each."""
    expert_A = experts_TK.T.reshape(-1)
    order_A = jnp.argsort(expert_A, stable=True)
    group_A = expert_A[order_A] // (experts // groups)
    counts = jnp.zeros(groups, jnp.int32).at[group_A].add(1)
    rank_A = jnp.arange(group_A.size) - (jnp.cumsum(counts) - counts)[group_A]
    rows = groups * capacity
    row_A = jnp.where(rank_A < capacity, group_A * capacity + rank_A, rows)
    return _both_ways(order_A, row_A, rows, experts_TK.shape[::-1])


def sorted_places(expert_R: jax.Array, experts: int) -> Places:
    """Rows of a received buffer sorted by expert, those of no expert (`experts`) left out."""
    order_R = jnp.argsort(expert_R, stable=True)
    rows = expert_R.size
    row_R = jnp.where(expert_R[order_R] < experts, jnp.arange(rows), rows)
    return _both_ways(order_R, row_R, rows, (1, rows))


def expert_of_rows(counts_PE: jax.Array, capacity: int) -> jax.Array:
    """The expert of each received row, given how many each of P devices sent to each expert.

    Returns:
        int32 [P * capacity]; E for rows that nobody filled.
    """
    ends_PE = jnp.cumsum(counts_PE, axis=1)
    expert_PC = (jnp.arange(capacity)[None, :, None] >= ends_PE[:, None, :]).sum(axis=-1)
    return expert_PC.reshape(-1)


@jax.custom_vjp
def spread(x_TD: jax.Array, at: Places) -> jax.Array:
    """Tokens in the rows of their assignments: [R, D]."""
    tokens = x_TD.shape[0]
    token_R = jnp.where(at.is_used_R, at.assignment_R % tokens, 0)
    return jnp.where(at.is_used_R[:, None], x_TD[token_R], 0)


@jax.custom_vjp
def collect(rows_RD: jax.Array, at: Places) -> jax.Array:
    """The sum of each token's rows, added up in float32: [T, D]."""
    is_kept_KT = at.row_KT < rows_RD.shape[0]
    picked_KTD = rows_RD[jnp.where(is_kept_KT, at.row_KT, 0)].astype(jnp.float32)
    sum_TD = jnp.where(is_kept_KT[:, :, None], picked_KTD, 0).sum(axis=0)
    return sum_TD.astype(rows_RD.dtype)


def weights_of_rows(weights_TK: jax.Array, at: Places) -> jax.Array:
    """The weight of each row's assignment, 0 for empty ones: float32 [R]."""
    weights_A = weights_TK.T.reshape(-1)
    picked_R = weights_A[jnp.where(at.is_used_R, at.assignment_R, 0)]
    return jnp.where(at.is_used_R, picked_R, 0)


def exchange(rows: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """Part p of the first dimension goes to device p along `axes`; its own inverse."""
    return jax.lax.all_to_all(rows, axes, 0, 0, tiled=True) if axes else rows


def _both_ways(order_A: jax.Array, row_A: jax.Array, rows: int, shape: tuple[int, ...]) -> Places:
    """The map from rows `row_A` of the assignments `order_A`, both ways."""
    order_A, row_A = order_A.astype(jnp.int32), row_A.astype(jnp.int32)
    empty_R = jnp.full(rows, order_A.size, jnp.int32)
    assignment_R = empty_R.at[row_A].set(order_A, mode="drop")
    row_KT = jnp.zeros_like(row_A).at[order_A].set(row_A).reshape(shape)
    return Places(assignment_R, row_KT)


spread.defvjp(
    lambda x_TD, at: (spread(x_TD, at), at), lambda at, rows_RD: (collect(rows_RD, at), None)
)
collect.defvjp(
    lambda rows_RD, at: (collect(rows_RD, at), at), lambda at, y_TD: (spread(y_TD, at), None)
)
