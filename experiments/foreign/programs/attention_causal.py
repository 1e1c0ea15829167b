"""cuDNN attention with a causal mask, forward and backward: 4 sequences of 8192, 32 heads of 128.

FLOPs: 2 products forward and 5 backward of 2 x T^2 x 128 for each head and sequence
(Dao et al., arXiv 2205.14135, algorithm 4), of which the mask leaves half.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, T, H, K = 4, 8192, 32, 128


@jax.jit
def gradients(q, k, v):
    attention = jax.nn.dot_product_attention
    out = lambda *qkv: attention(*qkv, is_causal=True, implementation="cudnn")
    return jax.grad(lambda *qkv: out(*qkv).astype(jnp.float32).sum(), (0, 1, 2))(q, k, v)


WORK = Work(7 * 2 * BATCH * H * T**2 * K / 2)


def price() -> sc.Prediction:
    q = jax.ShapeDtypeStruct((BATCH, T, H, K), jnp.bfloat16)
    return sc.predict_step(gradients, q, q, q, cluster="dgx-h100")
