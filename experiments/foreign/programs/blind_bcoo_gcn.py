"""Blind: a graph convolution with jax.experimental.sparse: 20 million edges, 1M nodes of 128.

FLOPs: the dense 2 x nodes x 128 x 128. Bytes: at least the edges' indices and values, and the rows
once (Kipf and Welling, arXiv 1609.02907, equation 2). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.experimental import sparse

import scaling as sc
from experiments.foreign.work import Work

NODES, EDGES, D = 2**20, 20_000_000, 128
WORK = Work(2 * NODES * D * D, EDGES * (8 + 4) + 3 * 4 * NODES * D, "tf32")
NOTE = "rows of neighbours are gathered by edge: 20 times the rows where no cache helps"


@jax.jit
def convolve(values, indices, x, w):
    adjacency = sparse.BCOO((values, indices), shape=(NODES, NODES))
    return jax.nn.relu(adjacency @ (x @ w))


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    indices = jax.ShapeDtypeStruct((EDGES, 2), jnp.int32)
    return sc.predict_step(
        convolve, array(EDGES), indices, array(NODES, D), array(D, D), cluster="dgx-h100"
    )
