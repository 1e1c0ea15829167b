"""Blind: vector quantisation: 262,144 rows of 256, the nearest of 8192 codes.

FLOPs: distances 2 x rows x codes x D, and the sums of each code's rows by a one-hot product of the
same size (van den Oord et al., arXiv 1711.00937, appendix A.1). float32 as tf32.
Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

ROWS, CODES, D, DECAY = 2**18, 8192, 256, 0.99
WORK = Work(2 * 2 * ROWS * CODES * D, dtype="tf32")


@jax.jit
def quantise(x, codes, counts):
    far = jnp.square(codes).sum(-1) - 2 * x @ codes.T
    chosen = jax.nn.one_hot(far.argmin(-1), CODES)
    counts = DECAY * counts + (1 - DECAY) * chosen.sum(0)
    moved = DECAY * codes + (1 - DECAY) * (chosen.T @ x) / (counts[:, None] + 1e-5)
    return moved, counts


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    return sc.predict_step(
        quantise, array(ROWS, D), array(CODES, D), array(CODES), cluster="dgx-h100"
    )
