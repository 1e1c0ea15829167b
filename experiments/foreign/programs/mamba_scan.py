"""Blocks in the manner of Mamba: a selective scan by jax.lax.associative_scan, 8 layers, gradients.

Products of a layer and token: 2 x D x 2E (in), 2 x E x (R + 2N) and 2 x R x E (dt, B, C), 2 x E x N
(read out), 2 x E x D (out), as in arXiv 2312.00752, algorithm 2; x 3 with gradients. The scan's own
arithmetic is on vectors: the states, tokens x E x N in float32, are written and read forward and
backward at least once.
"""

from functools import partial

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

LAYERS, BATCH, T, D, E, N, R = 8, 4, 2048, 1024, 2048, 16, 64
SHAPES = {"inward": (D, 2 * E), "select": (E, R + 2 * N), "dt": (R, E), "decay": (E, N),
          "outward": (E, D)}  # fmt: skip


def combine(left, right):
    return left[0] * right[0], left[1] * right[0] + right[1]


@jax.checkpoint
def block(x, w):
    u, gate = jnp.split(x @ w["inward"], 2, -1)
    u = jax.nn.silu(u)
    dt, b, c = jnp.split(u @ w["select"], (R, R + N), -1)
    dt = jax.nn.softplus(dt @ w["dt"]).astype(jnp.float32)
    keep = jnp.exp(-dt[..., None] * jnp.exp(w["decay"].astype(jnp.float32)))
    add = (dt * u)[..., None] * b[..., None, :]
    _, states = jax.lax.associative_scan(combine, (keep, add), axis=1)
    y = jnp.einsum("bten,btn->bte", states.astype(jnp.bfloat16), c)
    return x + (y * jax.nn.silu(gate)) @ w["outward"], None


@partial(jax.jit, donate_argnums=0)
def step(weights, x):
    loss = lambda w: jnp.square(jax.lax.scan(block, x, w)[0].astype(jnp.float32)).mean()
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, jax.grad(loss)(weights))


PRODUCTS = D * 2 * E + E * (R + 2 * N) + R * E + E * N + E * D
# With each block computed again backward: four passes instead of three, the last product once less.
WORK = Work(2 * LAYERS * BATCH * T * (4 * PRODUCTS - E * D), 4 * LAYERS * BATCH * T * E * N * 4)
NOTE = "steps of the associative scan pass over the states log2 T times; the read-out fuses"


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    weights = {name: array(LAYERS, *shape) for name, shape in SHAPES.items()}
    return sc.predict_step(step, weights, array(BATCH, T, D), cluster="dgx-h100")
