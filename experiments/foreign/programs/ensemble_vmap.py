"""Sixteen MLPs trained at once by vmap, each on its own data, Adam.

FLOPs: 16 x 2 x rows x D^2 x layers, three times, less the first layer's gradient of its input.
"""

import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

MEMBERS, ROWS, D, LAYERS = 16, 4096, 2048, 4
optimizer = optax.adam(1e-3)


def loss(weights, x):
    for w in weights:
        x = jax.nn.tanh(x @ w.astype(x.dtype))
    return jnp.square(x.astype(jnp.float32)).mean()


def one(weights, state, x):
    updates, state = optimizer.update(jax.grad(loss)(weights, x), state)
    return optax.apply_updates(weights, updates), state


WORK = Work(MEMBERS * 2 * ROWS * D**2 * (3 * LAYERS - 1))


def price() -> sc.Prediction:
    weights = [jax.ShapeDtypeStruct((MEMBERS, D, D), jnp.float32)] * LAYERS
    state = jax.eval_shape(jax.vmap(optimizer.init), weights)
    x = jax.ShapeDtypeStruct((MEMBERS, ROWS, D), jnp.bfloat16)
    step = jax.jit(jax.vmap(one), donate_argnums=(0, 1))
    return sc.predict_step(step, weights, state, x, cluster="dgx-h100")
