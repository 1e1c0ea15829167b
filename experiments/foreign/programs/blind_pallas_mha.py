"""Blind: jax's own Pallas attention for Triton, causal, 8 x 16 heads of 64, 4096 tokens, gradients.

FLOPs: forward 4 x heads x T^2 x 64 over the visible half; backward 2.5 times that (Dao, arXiv
2307.08691, section 3.1: five products for two). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu import attention

import scaling as sc
from experiments.foreign.work import Work

BATCH, T, HEADS, SIZE = 8, 4096, 16, 64
WORK = Work(3.5 * 4 * BATCH * HEADS * T**2 * SIZE / 2)
NOTE = "jax's backward kernel walks whole blocks on the diagonal and does two passes over scores"


@jax.jit
def gradients(q, k, v):
    def loss(q, k, v):
        return attention.mha(q, k, v, None, causal=True).astype(jnp.float32).sum()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((BATCH, T, HEADS, SIZE), jnp.bfloat16)
    return sc.predict_step(gradients, x, x, x, cluster="dgx-h100")
