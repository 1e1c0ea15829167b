"""Products of int8, W8A8 serving: 4 layers of 8192 x 8192 on 16,384 rows, scales by row.

FLOPs: 4 x 2 x rows x n^2, at the rate of int8.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

LAYERS, ROWS, N = 4, 16_384, 8192


@jax.jit
def forward(weights, x):
    def layer(x, w):
        scale = jnp.abs(x).max(-1, keepdims=True) / 127
        y = jnp.round(x / scale).astype(jnp.int8)
        product = jax.lax.dot(y, w, preferred_element_type=jnp.int32)
        return (product * scale.astype(jnp.float32)).astype(x.dtype), None

    return jax.lax.scan(layer, x, weights)[0]


WORK = Work(LAYERS * 2 * ROWS * N**2, dtype="int8")


def price() -> sc.Prediction:
    weights = jax.ShapeDtypeStruct((LAYERS, N, N), jnp.int8)
    x = jax.ShapeDtypeStruct((ROWS, N), jnp.bfloat16)
    return sc.predict_step(forward, weights, x, cluster="dgx-h100")
