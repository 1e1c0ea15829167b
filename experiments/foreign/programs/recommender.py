"""DLRM's shape: 26 tables of 1,000,000 x 64, 65,536 samples, MLPs, SGD by scatters.

FLOPs: bottom MLP 13-512-256-64, interactions 2 x 27^2 x 64, top MLP 415-512-256-1 (Naumov et al.,
arXiv 1906.00091), three times with gradients. Bytes: rows looked up, and added to.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

TABLES, ROWS, D, BATCH = 26, 1_000_000, 64, 65_536
BOTTOM, TOP = (13, 512, 256, 64), (64 + 27 * 26 // 2, 512, 256, 1)


def mlp(weights, x):
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ weights[-1]


def loss(params, dense, rows, labels):
    bottom = mlp(params["bottom"], dense)
    seen = jax.vmap(lambda table, row: table[row], (0, 1), 1)(params["tables"], rows)
    both = jnp.concatenate([bottom[:, None], seen], 1)
    pairs = jnp.einsum("bid,bjd->bij", both, both)[(slice(None), *jnp.triu_indices(27, 1))]
    logits = mlp(params["top"], jnp.concatenate([bottom, pairs], 1))[:, 0]
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


def step(params, *batch):
    grads = jax.grad(loss)(params, *batch)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


PRODUCTS = 3 * sum(2 * a * b for of in (BOTTOM, TOP) for a, b in pairwise(of)) - 2 * 13 * 512
WORK = Work(BATCH * (PRODUCTS + 3 * 2 * 27**2 * D), BATCH * TABLES * D * 4 * 3, "tf32")
NOTE = "autodiff makes the tables' gradient as large as the tables, 6.7 GB, and adds all of it"


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    layers = lambda sizes: [array(*shape) for shape in pairwise(sizes)]
    params = {"tables": array(TABLES, ROWS, D), "bottom": layers(BOTTOM), "top": layers(TOP)}
    rows = jax.ShapeDtypeStruct((BATCH, TABLES), jnp.int32)
    batch = array(BATCH, 13), rows, array(BATCH)
    return sc.predict_step(jax.jit(step, donate_argnums=0), params, *batch, cluster="dgx-h100")
