"""Tiles of sorted rows: as many as there may be, whatever the sizes of the groups."""

# Dims: E groups, T tiles

import jax
import jax.numpy as jnp

from scaling.models.accounting.expert_buffers import tile_count


def row_tiles(sizes_E: jax.Array, rows: int, tile: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Group, first row and end of each tile: int32 [T], in ascending order.

    A group of s rows has ceil(s / tile) tiles. Tiles that are not needed begin at `rows` and end
    at 0.
    """
    groups = sizes_E.size
    ends_E = jnp.cumsum(sizes_E)
    last_E = jnp.cumsum(-(-sizes_E // tile))  # the tile after a group's last one
    tile_T = jnp.arange(tile_count(rows, groups, tile))
    is_needed_T = tile_T < last_E[-1]
    group_T = jnp.minimum((tile_T[:, None] >= last_E[None, :]).sum(axis=1), groups - 1)
    zero_E = ends_E - sizes_E - (last_E + -sizes_E // tile) * tile  # where tile 0 would begin
    first_T = jnp.where(is_needed_T, zero_E[group_T] + tile_T * tile, rows)
    end_T = jnp.where(is_needed_T, ends_E[group_T], 0)
    return group_T.astype(jnp.int32), first_T.astype(jnp.int32), end_T.astype(jnp.int32)
