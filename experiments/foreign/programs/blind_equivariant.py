"""Blind: an equivariant layer (degree 2, 128 channels): 262,144 edges, gradients.

FLOPs: the radial MLP 2 x edges x (8 x 64 + 64 x 64 + 64 x 11 x 128), three times less its
input's; the eleven paths' products with Clebsch-Gordan tensors are left to the ratio's note
(Thomas et al., arXiv 1802.08219). Bytes: the radial weights of 11 x 128 floats an edge written
and read once forward and once backward. Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

EDGES, NODES, C, HIDDEN, BASIS = 2**18, 2**14, 128, 64, 8
PATHS = [
    (i, j, k) for i in range(3) for j in range(3) for k in range(3) if abs(i - j) <= k <= i + j
]
MLP = BASIS * HIDDEN + HIDDEN**2 + HIDDEN * len(PATHS) * C
WORK = Work(2 * EDGES * (3 * MLP - BASIS * HIDDEN), 4 * 4 * EDGES * len(PATHS) * C, "tf32")
NOTE = "products with Clebsch-Gordan tensors of at most 5 x 5 x 5 are small, and many"


def messages(params, radial, angular, nodes, sender, tensors):
    x = jax.nn.silu(jax.nn.silu(radial @ params[0]) @ params[1]) @ params[2]
    weights = x.reshape(EDGES, len(PATHS), C)
    out = [0.0, 0.0, 0.0]
    for path, (i, j, k) in enumerate(PATHS):
        made = jnp.einsum("eca,eb,abk->eck", nodes[i][sender], angular[j], tensors[path])
        out[k] += made * weights[:, path, :, None]
    return out


@jax.jit
def gradients(params, radial, angular, nodes, sender, receiver, tensors):
    def loss(params):
        made = messages(params, radial, angular, nodes, sender, tensors)
        gathered = [jax.ops.segment_sum(m, receiver, NODES) for m in made]
        return sum(jnp.square(g).mean() for g in gathered)

    return jax.grad(loss)(params)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    params = array(BASIS, HIDDEN), array(HIDDEN, HIDDEN), array(HIDDEN, len(PATHS) * C)
    nodes = [array(NODES, C, 2 * i + 1) for i in range(3)]
    angular = [array(EDGES, 2 * i + 1) for i in range(3)]
    ends = [jax.ShapeDtypeStruct((EDGES,), jnp.int32)] * 2
    tensors = [array(2 * i + 1, 2 * j + 1, 2 * k + 1) for i, j, k in PATHS]
    return sc.predict_step(
        gradients, params, array(EDGES, BASIS), angular, nodes, *ends, tensors, cluster="dgx-h100"
    )
