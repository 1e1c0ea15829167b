"""The experts' MLPs as kernels of Pallas-Triton: of rows in use only, activations inside.

    hidden_units       pre = x[source] w + b for up and gate, and h = act(pre) * the row's weight
    products           sums of x w, or of x w^T
    hidden_gradients   of dh = dy[source] w^T: gradients of pre and of the weights, and h again
    weights_gradient   x^T dy of each group; either of them may be taken by source
    combine            the sum of each token's rows

Rows are sorted by group, and `source` says which row of an operand each is: tokens are never copied
to rows. All but the last two have a program for each tile of rows of one group
(`scaling.models.moe.triton_tiles`).

Each call says in its `metadata` what it computes under the load that is expected, for whoever reads
the compiled program: {"kind", "dims": "groups,m,n,k", "flops", "bytes", "transcendentals",
"dtype"}.
"""

# Dims: R rows, S tokens, E groups, K inputs, N outputs, D model, F hidden units

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from scaling.models.moe import triton_tiles
from scaling.models.moe.triton_tiles import (
    DEPTH,
    Load,
    Rows,
    Tile,
    add_products,
    block,
    compiler,
    format_of,
    like,
    metadata_of,
    on_tiles,
)

TOKENS = 32  # that one program of `combine` sums up
MANY = 8  # warps: their registers hold the sums and what is read beside them
Units = Callable[..., jax.Array]  # of up and, if gated, gate: the hidden units


def hidden_units(
    load: Load,
    units: Units,
    x_SD: jax.Array,
    rows: Rows,
    weights: Sequence[jax.Array],
    biases: Sequence[jax.Array],
    kept: tuple[int, int],
    is_again: bool = False,
) -> list[jax.Array]:
    """x w + b for each of the weights [E, D, F] and biases [E, F], of the rows from kept[0] to
    kept[1], and then the hidden units of all rows [R, F]; `is_again`: without these."""
    (start, end), (groups, inputs, width) = kept, weights[0].shape
    n, total = len(weights), rows.source_R.size

    def body(tile: Tile, *refs: Any) -> None:
        x_ref, source_ref, weight_ref, *others = refs
        given, results = others[: n + len(biases)], others[n + len(biases) :]
        source = triton.load(source_ref.at[tile.safe])
        sums = add_products(load, tile, x_ref, source, given[:n])
        for i, bias_ref in enumerate(given[n:]):
            sums[i] += triton.load(bias_ref.at[tile.group, tile.over]).astype(jnp.float32)
        pre = [s.astype(x_ref.dtype) for s in sums]
        for ref, values in zip(results, pre, strict=False):
            tile.store(ref, values, start)
        if not is_again:
            h = units(*(values.astype(jnp.float32) for values in pre))
            tile.store(results[-1], h * triton.load(weight_ref.at[tile.safe])[:, None])

    there = min(end, load.rows) - min(start, load.rows)
    used, h = (there, 0) if is_again else (load.rows, load.rows)
    moved = used * inputs + (n * there + h) * width + (used > 0) * n * weights[0].size
    dims = (groups, used / groups, n * width, inputs)
    metadata = metadata_of(load, x_SD, dims, moved, h * width)
    shapes = [(end - start, width)] * n + ([] if is_again else [(total, width)])
    columns = block(width) if n == 1 else min(block(width), triton_tiles.BLOCKS[0] // n)
    operands = (x_SD, rows.source_R, rows.weight_R, *weights, *biases)
    out = [like(shape, x_SD) for shape in shapes]
    return on_tiles("experts_hidden", body, rows, width, columns, out, operands, metadata, start)


def products(
    load: Load,
    pairs: Sequence[tuple[jax.Array, jax.Array]],
    rows: Rows,
    transposed: bool = False,
) -> jax.Array:
    """The sum of x w over pairs of x [R, K] and w [E, K, N], or [E, N, K] transposed: [R, N]."""
    first, w = pairs[0]
    width, groups = w.shape[1 if transposed else 2], w.shape[0]

    def body(tile: Tile, *refs: Any) -> None:
        sums: list[jax.Array] = []  # none: zeros
        for x_ref, w_ref in zip(refs[:-1:2], refs[1:-1:2], strict=True):
            sums = add_products(load, tile, x_ref, tile.safe, [w_ref], transposed, sums)
        tile.store(refs[-1], sums[0])

    dims = (groups, load.rows / groups, width, sum(x.shape[1] for x, _ in pairs))
    moved = load.rows * (dims[3] + width) + sum(w.size for _, w in pairs)
    metadata = metadata_of(load, first, dims, moved)
    out, operands = [like((len(first), width), first)], [y for pair in pairs for y in pair]
    (y,) = on_tiles("experts_out", body, rows, width, block(width), out, operands, metadata)
    return y


def hidden_gradients(
    load: Load,
    units: Units,
    dy_SD: jax.Array,
    rows: Rows,
    down_EFD: jax.Array,
    pre: Sequence[Sequence[jax.Array]],
) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """Gradients of x w + b [R, F] and of the rows' weights, and the hidden units [R, F] again.

    `pre`: x w + b for each of the weights, in parts of the rows, one after the other.
    """
    groups, width, model = down_EFD.shape
    n, parts, total = len(pre), len(pre[0]), rows.source_R.size

    def body(tile: Tile, *refs: Any) -> None:
        dy_ref, source_ref, weight_ref, down_ref, *others = refs
        given, results = others[: n * parts], others[n * parts :]
        source = triton.load(source_ref.at[tile.safe])
        (dh,) = add_products(load, tile, dy_ref, source, [down_ref], True)
        weight = triton.load(weight_ref.at[tile.safe])[:, None]
        values = [tile.load(given[i * parts : (i + 1) * parts]) for i in range(n)]
        h, gradients_of = jax.vjp(units, *values)
        for ref, gradient in zip(results, gradients_of(dh * weight), strict=False):
            tile.store(ref, gradient)
        tile.store(results[n], h * weight)
        at = results[n + 1].at[tile.rows, tile.block]
        triton.store(at, (dh * h).sum(axis=1), mask=tile.is_used)

    dims = (groups, load.rows / groups, width, model)
    moved = load.rows * (model + (2 * n + 1) * width) + down_EFD.size
    metadata = metadata_of(load, dy_SD, dims, moved, load.rows * width)
    columns = block(width)
    out = [*[like((total, width), dy_SD)] * (n + 1)]
    out.append(like((total, width // columns), dy_SD, jnp.float32))
    operands = (dy_SD, rows.source_R, rows.weight_R, down_EFD, *(y for each in pre for y in each))
    *found, parts_RB = on_tiles(
        "experts_hidden_gradients", body, rows, width, columns, out, operands, metadata, 0, MANY
    )
    return found[:n], found[n], parts_RB.sum(axis=1)


def weights_gradient(
    load: Load,
    x: jax.Array,
    dy: jax.Array,
    rows: Rows,
    by_source: tuple[bool, bool] = (False, False),
    dtype: jax.typing.DTypeLike | None = None,
) -> jax.Array:
    """The sum over the rows of each group of x^T dy, x [R, K] and dy [R, N]: [E, K, N].

    `dtype`: of the result; None: that of x.
    """
    sizes, k, n = rows.sizes_E, x.shape[1], dy.shape[1]
    ends = jnp.cumsum(sizes).astype(jnp.int32)
    blocks, depth = (block(k), block(n)), DEPTH // x.dtype.itemsize

    def kernel(first_ref: Any, end_ref: Any, source_ref: Any, *refs: Any) -> None:
        group = pl.program_id(2)
        first, end = first_ref[group], end_ref[group]
        starts = [pl.program_id(i) * size for i, size in enumerate(blocks)]

        def add(i: jax.Array, sums: jax.Array) -> jax.Array:
            number = first + i * depth + jnp.arange(depth)
            is_used = number < end
            safe = jnp.where(is_used, number, first)
            source = triton.load(source_ref.at[safe]) if any(by_source) else safe

            def of_rows(ref: Any, start: jax.Array, size: int, by_source: bool) -> jax.Array:
                at = (source if by_source else safe)[:, None], (start + jnp.arange(size))[None, :]
                return triton.load(ref.at[*at], mask=is_used[:, None], other=0.0)

            x, dy = map(of_rows, refs[:2], starts, blocks, by_source)
            return sums + triton.dot(x, dy, trans_a=True, precision=load.precision)

        steps, zeros = pl.cdiv(end - first, depth), jnp.zeros(blocks, jnp.float32)
        sums = jax.lax.fori_loop(0, steps, add, zeros)
        sides = (pl.ds(start, size) for start, size in zip(starts, blocks, strict=True))
        triton.store(refs[2].at[group, *sides], sums.astype(refs[2].dtype))

    dims = (sizes.size, k, n, load.rows / sizes.size)
    return pl.pallas_call(
        kernel,
        out_shape=like((sizes.size, k, n), x, dtype),
        grid=(k // blocks[0], n // blocks[1], sizes.size),
        interpret=triton_tiles.INTERPRET,
        compiler_params=compiler(),
        name="experts_weights",
        metadata=metadata_of(load, x, dims, load.rows * (k + n) + sizes.size * k * n),
    )(ends - sizes.astype(jnp.int32), ends, rows.source_R, x, dy)


def combine(load: Load, y_RD: jax.Array, row_KS: jax.Array) -> jax.Array:
    """The sum of each token's rows, added in float32: [S, D]; there is no row R and beyond."""
    (total, width), (choices, tokens) = y_RD.shape, row_KS.shape
    columns = block(width)

    def kernel(row_ref: Any, y_ref: Any, out_ref: Any) -> None:
        token = pl.program_id(0) * TOKENS + jnp.arange(TOKENS)
        at = (pl.program_id(1) * columns + jnp.arange(columns))[None, :]
        is_token = token < tokens

        def add(i: jax.Array, sums: jax.Array) -> jax.Array:
            row = triton.load(row_ref.at[i, token], mask=is_token, other=total)
            is_there = (row < total)[:, None]
            safe = jnp.where(row < total, row, 0)[:, None]
            return sums + triton.load(y_ref.at[safe, at], mask=is_there, other=0.0).astype(
                jnp.float32
            )

        sums = jax.lax.fori_loop(0, choices, add, jnp.zeros((TOKENS, columns), jnp.float32))
        triton.store(
            out_ref.at[token[:, None], at], sums.astype(out_ref.dtype), mask=is_token[:, None]
        )

    moved = y_RD.dtype.itemsize * (load.rows + tokens) * width + row_KS.size * 4
    return pl.pallas_call(
        kernel,
        out_shape=like((tokens, width), y_RD),
        grid=(pl.cdiv(tokens, TOKENS), width // columns),
        interpret=triton_tiles.INTERPRET,
        compiler_params=compiler(),
        name="experts_combine",
        metadata={"kind": "stream", "bytes": f"{moved:.0f}", "dtype": format_of(load, y_RD)},
    )(row_KS, y_RD)
