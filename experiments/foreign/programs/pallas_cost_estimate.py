"""A matrix product written as a Pallas kernel for Triton, 8192^3, with a cost estimate.

FLOPs: 2 n^3. The compiled text does not tell; the estimate is taken from the traced step.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import scaling as sc
from experiments.foreign.programs.pallas_triton_matmul import TILE, N, tiled_product
from experiments.foreign.work import Work

WORK = Work(2 * N**3)


@jax.jit
def product(x, w):
    return pl.pallas_call(
        tiled_product,
        jax.ShapeDtypeStruct((N, N), x.dtype),
        grid=(N // TILE, N // TILE),
        cost_estimate=pl.CostEstimate(flops=2 * N**3, bytes_accessed=6 * N**2, transcendentals=0),
        compiler_params=plgpu.CompilerParams(num_warps=8, num_stages=3),
    )(x, w)


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((N, N), jnp.bfloat16)
    return sc.predict_step(product, x, x, cluster="dgx-h100")
