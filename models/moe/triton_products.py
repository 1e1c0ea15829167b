"""Grouped products as kernels of Pallas-Triton: rows of the groups only, each matrix read by tiles.

    forward            a program per tile of rows of one group and block of columns
    weights' gradient  a program per group and block of its matrix, over the rows of the group

The grid has a program for every tile that there may be; those without rows return at once. Programs
go down the tiles of a band and then to the next columns, so that the band's rows and one block of
columns stay in the L2 cache.

Each call says in its `metadata` what it computes under an even load, for whoever reads the compiled
program: {"kind": "grouped_matmul", "dims": "groups,m,n,k", "flops", "bytes", "dtype"}.
"""

# Dims: R rows, E groups, K inputs, N outputs, T tiles of rows

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from scaling.models.accounting.expert_buffers import tile_count

ROWS = 128  # of a tile; with 128 columns and 4 warps as cuBLAS' and tokamax' kernels on Hopper
BLOCKS = (128, 64, 32, 16)  # columns of a tile; tensor cores want 16 of each dimension
DEPTH = 128  # bytes of a row that one step of the loop takes
BAND = 8  # tiles
COMPILER = triton.CompilerParams(num_warps=4, num_stages=3)  # 96 KiB: what sm_86 to sm_120 have
INTERPRET = False  # tests run the kernels on CPUs


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


def forward(
    x: jax.Array,
    w: jax.Array,
    sizes: jax.Array,
    even_rows: int,
    precision: jax.lax.Precision,
    transposed: bool = False,
) -> jax.Array:
    """x [R, K] times w [E, K, N] of each row's group, or [E, N, K] transposed: [R, N]."""
    (rows, k), n = x.shape, w.shape[1 if transposed else 2]
    columns, depth = block(n), min(block(k), DEPTH // x.dtype.itemsize)
    tiles = row_tiles(sizes, rows, ROWS)
    count = tiles[0].size

    def kernel(*refs: Any) -> None:
        group_ref, first_ref, end_ref, x_ref, w_ref, y_ref = refs
        tile, column_block = _place(pl.program_id(0), count, n // columns)
        group, first, end = group_ref[tile], first_ref[tile], end_ref[tile]

        @pl.when(first < end)
        def _() -> None:
            rows = first + jnp.arange(ROWS)
            safe = jnp.where(rows < end, rows, first)[:, None]
            over = pl.ds(column_block * columns, columns)

            def add(i: jax.Array, sums: jax.Array) -> jax.Array:
                along = pl.ds(i * depth, depth)
                x = triton.load(x_ref.at[safe, (i * depth + jnp.arange(depth))[None, :]])
                w_at = w_ref.at[group, over, along] if transposed else w_ref.at[group, along, over]
                w = triton.load(w_at)
                return sums + triton.dot(x, w, trans_b=transposed, precision=precision)

            zeros = jnp.zeros((ROWS, columns), jnp.float32)
            sums = jax.lax.fori_loop(0, k // depth, add, zeros)
            at = y_ref.at[rows[:, None], (column_block * columns + jnp.arange(columns))[None, :]]
            triton.store(at, sums.astype(y_ref.dtype), mask=(rows < end)[:, None])

    return pl.pallas_call(
        kernel,
        out_shape=_like((rows, n), x),
        grid=(count * (n // columns),),
        interpret=INTERPRET,
        compiler_params=COMPILER,
        name="grouped_matmul",
        metadata=_metadata(x, precision, (sizes.size, even_rows / sizes.size, n, k)),
    )(*tiles, x, w)


def _place(program: jax.Array, tiles: int, blocks: int) -> tuple[jax.Array, jax.Array]:
    """Tile and block of columns of a program."""
    band = program // (BAND * blocks)
    height = jnp.minimum(tiles - band * BAND, BAND)
    within = program - band * BAND * blocks
    return band * BAND + within % height, within // height


def weights_gradient(
    x: jax.Array, dy: jax.Array, sizes: jax.Array, even_rows: int, precision: jax.lax.Precision
) -> jax.Array:
    """The sum over the rows of each group of x^T dy, x [R, K] and dy [R, N]: [E, K, N]."""
    k, n, groups = x.shape[1], dy.shape[1], sizes.size
    ends = jnp.cumsum(sizes).astype(jnp.int32)
    blocks, depth = (block(k), block(n)), DEPTH // x.dtype.itemsize

    def kernel(first_ref: Any, end_ref: Any, x_ref: Any, dy_ref: Any, dw_ref: Any) -> None:
        group = pl.program_id(2)
        first, end = first_ref[group], end_ref[group]
        starts = [pl.program_id(i) * size for i, size in enumerate(blocks)]

        def add(i: jax.Array, sums: jax.Array) -> jax.Array:
            rows = first + i * depth + jnp.arange(depth)
            is_used, safe = (rows < end)[:, None], jnp.where(rows < end, rows, first)[:, None]

            def of_rows(ref: Any, start: jax.Array, size: int) -> jax.Array:
                at = ref.at[safe, (start + jnp.arange(size))[None, :]]
                return triton.load(at, mask=is_used, other=0.0)

            x, dy = map(of_rows, (x_ref, dy_ref), starts, blocks)
            return sums + triton.dot(x, dy, trans_a=True, precision=precision)

        steps, zeros = pl.cdiv(end - first, depth), jnp.zeros(blocks, jnp.float32)
        sums = jax.lax.fori_loop(0, steps, add, zeros)
        sides = (pl.ds(start, size) for start, size in zip(starts, blocks, strict=True))
        triton.store(dw_ref.at[group, *sides], sums.astype(dw_ref.dtype))

    return pl.pallas_call(
        kernel,
        out_shape=_like((groups, k, n), x),
        grid=(k // blocks[0], n // blocks[1], groups),
        interpret=INTERPRET,
        compiler_params=COMPILER,
        name="grouped_matmul_weights",
        metadata=_metadata(x, precision, (groups, k, n, even_rows / groups)),
    )(ends - sizes.astype(jnp.int32), ends, x, dy)


def _metadata(
    x: jax.Array, precision: jax.lax.Precision, dims: tuple[float, float, float, float]
) -> dict[str, str]:
    """FLOPs, and bytes if every operand is read and the result written once."""
    groups, m, n, k = dims
    is_exact = precision == jax.lax.Precision.HIGHEST
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32" if is_exact else "tf32"}
    moved = x.dtype.itemsize * groups * (m * k + k * n + m * n)
    return {
        "kind": "grouped_matmul",
        "dims": ",".join(f"{d:.10g}" for d in dims),
        "flops": f"{2 * groups * m * n * k:.0f}",
        "bytes": f"{moved:.0f}",
        "dtype": names[x.dtype.name],
    }


def _like(shape: tuple[int, ...], x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type)
