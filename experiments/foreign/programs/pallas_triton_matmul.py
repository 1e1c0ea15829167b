"""A matrix product written as a Pallas kernel for Triton, 8192^3 in bf16, without a cost estimate.

FLOPs: 2 n^3. Nothing in the compiled text tells them: they are counted in the traced step, from the
grid and the kernel's loop.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import scaling as sc
from experiments.foreign.work import Work

N, TILE, INNER = 8192, 128, 64


def tiled_product(x, w, out):
    row, column = pl.program_id(0) * TILE, pl.program_id(1) * TILE

    def add(i, total):
        return total + plgpu.dot(
            x[pl.ds(row, TILE), pl.ds(i * INNER, INNER)],
            w[pl.ds(i * INNER, INNER), pl.ds(column, TILE)],
        )

    total = jax.lax.fori_loop(0, N // INNER, add, jnp.zeros((TILE, TILE), jnp.float32))
    out[pl.ds(row, TILE), pl.ds(column, TILE)] = total.astype(out.dtype)


@jax.jit
def product(x, w):
    return pl.pallas_call(
        tiled_product,
        jax.ShapeDtypeStruct((N, N), x.dtype),
        grid=(N // TILE, N // TILE),
        compiler_params=plgpu.CompilerParams(num_warps=8, num_stages=3),
    )(x, w)


WORK = Work(2 * N**3)
NOTE = "no estimate of the kernel, and none given by `kernels`: counted from its grid and body"


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((N, N), jnp.bfloat16)
    return sc.predict_step(product, x, x, cluster="dgx-h100")
