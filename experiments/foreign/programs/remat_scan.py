"""64 layers of an MLP under two nested scans with checkpoints (square-root remat), gradients.

FLOPs: 2 x 2 x rows x D F a layer and pass; forward, twice again (outer and inner checkpoint), twice
backward (Chen et al., arXiv 1604.06174). The innermost second product is not needed again.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

OUTER, INNER, ROWS, D, F = 8, 8, 16_384, 2048, 8192


@jax.checkpoint
def layer(x, w):
    return x + jax.nn.gelu(x @ w[0]) @ w[1], None


@jax.checkpoint
def group(x, weights):
    return jax.lax.scan(layer, x, weights)


@jax.jit
def gradients(weights, x):
    loss = lambda w: jnp.square(jax.lax.scan(group, x, w)[0].astype(jnp.float32)).mean()
    return jax.grad(loss)(weights)


WORK = Work(OUTER * INNER * (5 * 4 - 2) * ROWS * D * F)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    weights = array(OUTER, INNER, D, F), array(OUTER, INNER, F, D)
    return sc.predict_step(gradients, weights, array(ROWS, D), cluster="dgx-h100")
