"""Products of fp8 (e4m3) with scales by tensor, 4 layers of 8192 x 8192 on 16,384 rows.

FLOPs: 4 x 2 x rows x n^2, at the rate of fp8 where XLA rewrites them to one.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

LAYERS, ROWS, N = 4, 16_384, 8192
fp8 = jnp.float8_e4m3fn


@jax.jit
def forward(weights, scales, x):
    def layer(x, of):
        w, scale = of
        own = jnp.abs(x).max().astype(jnp.float32) / float(jnp.finfo(fp8).max)
        y = (x / own).astype(fp8).astype(jnp.bfloat16) * own.astype(jnp.bfloat16)
        return y @ (w.astype(jnp.bfloat16) * scale), None

    return jax.lax.scan(layer, x, (weights, scales))[0]


WORK = Work(LAYERS * 2 * ROWS * N**2, dtype="fp8")


def price() -> sc.Prediction:
    weights = jax.ShapeDtypeStruct((LAYERS, N, N), fp8)
    scales = jax.ShapeDtypeStruct((LAYERS,), jnp.bfloat16)
    x = jax.ShapeDtypeStruct((ROWS, N), jnp.bfloat16)
    return sc.predict_step(forward, weights, scales, x, cluster="dgx-h100")
