"""Three layers of a graph network by segment_sum: 262,144 nodes, 4,194,304 edges, width 128, grads.

FLOPs: 2 x nodes x D^2 a layer and pass (Kipf and Welling, arXiv 1609.02907, equation 2), three
passes, less the first layer's input. Bytes: each layer gathers and sums an edge's D values, forward
and backward, but the first, whose input needs no gradient.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

NODES, EDGES, D, LAYERS = 2**18, 2**22, 128, 3


def network(weights, x, senders, receivers):
    for w in weights:
        summed = jax.ops.segment_sum(x[senders], receivers, NODES)
        x = jax.nn.relu(summed @ w)
    return x


@jax.jit
def gradients(weights, *graph):
    return jax.grad(lambda w: jnp.square(network(w, *graph)).mean())(weights)


WORK = Work((3 * LAYERS - 1) * 2 * NODES * D**2, (2 * LAYERS - 1) * 2 * EDGES * D * 4, "tf32")
NOTE = "XLA fuses lookup and sum; of the rows taken again the price finds 50 of 134 MB in the cache"


def price() -> sc.Prediction:
    weights = [jax.ShapeDtypeStruct((D, D), jnp.float32)] * LAYERS
    x = jax.ShapeDtypeStruct((NODES, D), jnp.float32)
    edges = jax.ShapeDtypeStruct((EDGES,), jnp.int32)
    return sc.predict_step(gradients, weights, x, edges, edges, cluster="dgx-h100")
