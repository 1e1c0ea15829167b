"""Blind: four hosts under pmap: an MLP of 8 layers of 4096, gradients averaged by pmean, SGD.

FLOPs of a GPU: 3 x 2 x rows x weights, less the gradient of the rows (data parallelism as in
Goyal et al., arXiv 1706.02677). Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

LAYERS, D, ROWS = 8, 4096, 4096
WORK = Work(2 * ROWS * (3 * LAYERS * D**2 - D**2))


def loss(weights, x):
    for w in weights:
        x = jax.nn.relu(x @ w)
    return jnp.square(x.astype(jnp.float32)).mean()


def step(weights, x):
    grads = jax.lax.pmean(jax.grad(loss)(weights, x), "gpus")
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, grads)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100", nodes=4):
        n = jax.local_device_count()
        array = lambda *shape: jax.ShapeDtypeStruct((n, *shape), jnp.bfloat16)
        weights = [array(D, D)] * LAYERS
        train = jax.pmap(step, axis_name="gpus", donate_argnums=0)
        return sc.predict_step(train, weights, array(ROWS, D), cluster="dgx-h100", nodes=4)
