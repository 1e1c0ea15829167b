"""Products of rows that are sorted by group, each with the matrix of its own group.

    y_RN[r] = x_RK[r] w_EKN[group of r]        rows beyond the sum of the sizes belong to no group

    tiles    a loop over tiles of rows of one group, in any backend: the last tile of each is
             filled up (`scaling.models.accounting.expert_buffers`)
    ragged   `jax.lax.ragged_dot`: TPUs have a kernel for it; elsewhere XLA (jax 0.10.2) multiplies
             every row with every matrix

They are for where kernels of our own (`scaling.models.moe.grouped_mlps`) do not run: CPUs, TPUs,
GPUs before Ampere, and matrices whose sides no block divides. What a row of no group gets is not
defined, and may not be a number; the gradients of all else do not depend on it.
"""

# Dims: R rows, E groups, K inputs, N outputs, T tiles, t rows of a tile

import functools
from typing import Literal

import jax
import jax.numpy as jnp

from scaling.models.accounting.expert_buffers import tile_size
from scaling.models.moe.triton_tiles import row_tiles

Implementation = Literal["tiles", "ragged"]


def grouped_matmul(
    x_RK: jax.Array,
    w_EKN: jax.Array,
    sizes_E: jax.Array,
    implementation: Implementation = "ragged",
    precision: jax.lax.Precision = jax.lax.Precision.DEFAULT,
) -> jax.Array:
    """The product of each row with the matrix of its group: [R, N], in the format of the rows.

    Args:
        sizes_E: int32, rows of each group; in sum at most R.
    """
    if implementation == "ragged":
        return jax.lax.ragged_dot(
            x_RK, w_EKN, sizes_E, precision=precision, preferred_element_type=x_RK.dtype
        )
    return _product(precision, x_RK, w_EKN, sizes_E)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(
    precision: jax.lax.Precision, x_RK: jax.Array, w_EKN: jax.Array, sizes_E: jax.Array
) -> jax.Array:
    return _forward(precision, x_RK, w_EKN, sizes_E)


def _gradients(
    precision: jax.lax.Precision, saved: tuple[jax.Array, ...], dy_RN: jax.Array
) -> tuple:
    x_RK, w_EKN, sizes_E = saved
    dx_RK = _forward(precision, dy_RN, w_EKN, sizes_E, transposed=True)
    return dx_RK, _weights_gradient(precision, x_RK, dy_RN, sizes_E), None


_product.defvjp(lambda precision, *operands: (_product(precision, *operands), operands), _gradients)


def _forward(
    precision: jax.lax.Precision,
    x: jax.Array,
    w: jax.Array,
    sizes: jax.Array,
    transposed: bool = False,
) -> jax.Array:
    """The products with the matrices, or with the transposed ones."""
    rows, t = x.shape[0], tile_size(x.shape[0], sizes.size)
    tiles = row_tiles(sizes, rows, t)
    padded = jnp.pad(x, ((0, t), (0, 0)))

    def multiply(y: jax.Array, tile: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        group, first, _ = tile
        own = w[group].T if transposed else w[group]
        part = _dot(precision, jax.lax.dynamic_slice_in_dim(padded, first, t), own).astype(x.dtype)
        return jax.lax.dynamic_update_slice_in_dim(y, part, first, 0), None

    # Tiles ascend, so what one has written beyond its group's end the next ones overwrite.
    empty = _zeros((rows + t, w.shape[1 if transposed else 2]), x)
    return jax.lax.scan(multiply, empty, tiles)[0][:rows]


def _weights_gradient(
    precision: jax.lax.Precision, x: jax.Array, dy: jax.Array, sizes: jax.Array
) -> jax.Array:
    """The sum over each group's rows of x^T dy: [E, K, N]."""
    t = tile_size(x.shape[0], sizes.size)
    padded_x, padded_dy = (jnp.pad(y, ((0, t), (0, 0))) for y in (x, dy))

    def add(dw: jax.Array, tile: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        group, first, end = tile
        is_used = (first + jnp.arange(t) < end)[:, None]
        of_tile = lambda y: jnp.where(is_used, jax.lax.dynamic_slice_in_dim(y, first, t), 0)
        return dw.at[group].add(_dot(precision, of_tile(padded_x).T, of_tile(padded_dy))), None

    sums = _zeros((sizes.size, x.shape[1], dy.shape[1]), x, jnp.float32)
    return jax.lax.scan(add, sums, row_tiles(sizes, x.shape[0], t))[0].astype(x.dtype)


def _dot(precision: jax.lax.Precision, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)


def _zeros(
    shape: tuple[int, ...], like: jax.Array, dtype: jax.typing.DTypeLike | None = None
) -> jax.Array:
    """Zeros that vary over the mesh axes of a `shard_map` that `like` varies over."""
    zeros = jnp.zeros(shape, dtype or like.dtype)
    varying = tuple(jax.typeof(like).manual_axis_type.varying)
    return jax.lax.pcast(zeros, varying, to="varying") if varying else zeros
