"""Sampling among the 50 likeliest of 128,256 tokens, for 1024 sequences, with the head's product.

FLOPs: 2 x sequences x D V. Bytes: the head's weights once; the logits written and read.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

SEQUENCES, D, V, KEPT = 1024, 4096, 128_256, 50


@jax.jit
def sample(x, head, key):
    logits, tokens = jax.lax.top_k((x @ head).astype(jnp.float32), KEPT)
    chosen = jax.random.categorical(key, logits)
    return jnp.take_along_axis(tokens, chosen[:, None], 1)


WORK = Work(2 * SEQUENCES * D * V, 2 * D * V + 2 * 2 * SEQUENCES * V)


def price() -> sc.Prediction:
    x, head = (jax.ShapeDtypeStruct(n, jnp.bfloat16) for n in ((SEQUENCES, D), (D, V)))
    return sc.predict_step(sample, x, head, jax.random.key(0), cluster="dgx-h100")
