"""Tiles of rows of one group, for the kernels of `scaling.models.moe.triton_products`.

A kernel has a program for each tile of rows of one group and block of columns; those of tiles
without rows return at once. Programs go down the tiles of a band and then to the next columns, so
that the band's rows and one block of columns stay in the L2 cache.
"""

# Dims: R rows, E groups, T tiles of rows

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from scaling.models.accounting.expert_buffers import LEAST_BLOCK, tile_count

ROWS = 128  # of a tile; with 128 columns and 4 warps as cuBLAS' and tokamax' kernels on Hopper
BLOCKS = (128, 64, 32, LEAST_BLOCK)  # columns of a tile
DEPTH = 128  # bytes of a row that one step of the loop takes
BAND = 8  # tiles
INTERPRET = False  # tests run the kernels on CPUs


class Rows(NamedTuple):
    """Rows sorted by group: of which token each is, its weight, and how many each group has."""

    source_R: jax.Array  # int32
    weight_R: jax.Array  # float32
    sizes_E: jax.Array  # int32; further rows are in no group


@dataclass(frozen=True)
class Load:
    """The rows that are expected, which the compiler cannot know, and the products' precision."""

    rows: float  # of all groups
    precision: jax.lax.Precision


class Tile(NamedTuple):
    """Rows of one group and a block of columns, inside a kernel."""

    group: jax.Array
    rows: jax.Array
    is_used: jax.Array
    safe: jax.Array  # the rows, or the first one for those that are not the group's
    block: jax.Array
    size: int  # columns

    @property
    def over(self) -> Any:
        """The columns, of a matrix."""
        return pl.ds(self.block * self.size, self.size)

    def of(self, ref: Any, rows: jax.Array) -> Any:
        """The tile's columns of these rows of an array."""
        return ref.at[rows[:, None], (self.block * self.size + jnp.arange(self.size))[None, :]]

    def store(self, ref: Any, values: jax.Array, start: int = 0) -> None:
        """Write the rows in use into an array that begins with row `start`."""
        length = ref.shape[0]
        is_there = self.is_used & (self.rows >= start) & (self.rows < start + length)
        at = jnp.where(is_there, self.rows - start, length)
        triton.store(self.of(ref, at), values.astype(ref.dtype), mask=is_there[:, None])

    def load(self, refs: Sequence[Any]) -> jax.Array:
        """Read the rows from the arrays that have them, one after the other; in float32."""
        sums, start = jnp.float32(0), 0
        for ref in refs:
            length = ref.shape[0]
            is_there = self.is_used & (self.rows >= start) & (self.rows < start + length)
            at = self.of(ref, jnp.where(is_there, self.rows - start, 0))
            sums += triton.load(at, mask=is_there[:, None], other=0.0).astype(jnp.float32)
            start += length
        return sums


def block(size: int) -> int:
    """The largest block of the kernels that divides a matrix's side; 0: there is none."""
    return next((b for b in BLOCKS if size % b == 0), 0)


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


def on_tiles(
    name: str,
    body: Callable,
    rows: Rows,
    width: int,
    columns: int,
    out: list[jax.ShapeDtypeStruct],
    operands: Sequence[jax.Array],
    metadata: dict[str, str],
    start: int = 0,
    warps: int = 4,
) -> list[jax.Array]:
    """Run `body(tile, *operands, *results)` for every tile that ends after row `start`.

    Returns the results, of the shapes and formats `out`.
    """
    tiles = row_tiles(rows.sizes_E, rows.source_R.size, ROWS)
    count, blocks = tiles[0].size, width // columns

    def kernel(group_ref: Any, first_ref: Any, end_ref: Any, *refs: Any) -> None:
        program = pl.program_id(0)
        band = program // (BAND * blocks)
        height = jnp.minimum(count - band * BAND, BAND)
        within = program - band * BAND * blocks
        tile = band * BAND + within % height
        first, end = first_ref[tile], end_ref[tile]

        @pl.when((first < end) & (jnp.minimum(first + ROWS, end) > start))
        def _() -> None:
            number = first + jnp.arange(ROWS)
            is_used = number < end
            safe = jnp.where(is_used, number, first)
            body(Tile(group_ref[tile], number, is_used, safe, within // height, columns), *refs)

    return pl.pallas_call(
        kernel,
        out_shape=out,
        grid=(count * blocks,),
        interpret=INTERPRET,
        compiler_params=compiler(warps),
        name=name,
        metadata=metadata,
    )(*tiles, *operands)


def add_products(
    load: Load,
    tile: Tile,
    x_ref: Any,
    x_rows: jax.Array,
    w_refs: Sequence[Any],
    transposed: bool = False,
    sums: Sequence[jax.Array] | None = None,
) -> list[jax.Array]:
    """The tile's sums over the inputs of x w, for each w; added to `sums`. float32."""
    inputs = x_ref.shape[1]
    depth = min(block(inputs), DEPTH // x_ref.dtype.itemsize)

    def add(i: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        along = pl.ds(i * depth, depth)
        x = triton.load(x_ref.at[x_rows[:, None], (i * depth + jnp.arange(depth))[None, :]])
        at = (tile.group, tile.over, along) if transposed else (tile.group, along, tile.over)
        dot = lambda w: triton.dot(x, w, trans_b=transposed, precision=load.precision)
        return tuple(
            s + dot(triton.load(w_ref.at[*at])) for s, w_ref in zip(sums, w_refs, strict=True)
        )

    zeros = (jnp.zeros((ROWS, tile.size), jnp.float32),) * len(w_refs)
    return list(jax.lax.fori_loop(0, inputs // depth, add, tuple(sums or zeros)))


def compiler(warps: int = 4) -> triton.CompilerParams:
    """Three pipeline stages: 96 KiB of shared memory, which sm_86 to sm_120 have."""
    return triton.CompilerParams(num_warps=warps, num_stages=3)


def metadata_of(
    load: Load,
    x: jax.Array,
    dims: tuple[float, float, float, float],
    elements: float,
    exponentials: float = 0,
) -> dict[str, str]:
    """What a call computes, and its bytes: so many elements, read or written once."""
    groups, m, n, k = dims
    return {
        "kind": "grouped_matmul",
        "dims": ",".join(f"{d:.10g}" for d in dims),
        "flops": f"{2 * groups * m * n * k:.0f}",
        "bytes": f"{x.dtype.itemsize * elements:.0f}",
        "transcendentals": f"{exponentials:.0f}",
        "dtype": format_of(load, x),
    }


def format_of(load: Load, x: jax.Array) -> str:
    is_exact = load.precision == jax.lax.Precision.HIGHEST
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32" if is_exact else "tf32"}
    return names[x.dtype.name]


def like(
    shape: tuple[int, ...], x: jax.Array, dtype: jax.typing.DTypeLike | None = None
) -> jax.ShapeDtypeStruct:
    varying = jax.typeof(x).manual_axis_type
    return jax.ShapeDtypeStruct(shape, dtype or x.dtype, manual_axis_type=varying)
