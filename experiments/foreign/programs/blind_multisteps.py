"""Blind: optax.MultiSteps, AdamW after every 8th of the calls, an MLP of 1.07 billion weights.

FLOPs of a call: 3 x 2 x rows x weights, less the gradient of the first rows. Bytes of a call that
only accumulates: sums of gradients read and written, weights read. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

LAYERS, D, ROWS, EVERY = 16, 8192, 4096, 8
WEIGHTS = LAYERS * D**2
WORK = Work(2 * ROWS * (3 * WEIGHTS - D**2), 3 * 4 * WEIGHTS)
optimizer = optax.MultiSteps(optax.adamw(1e-4), every_k_schedule=EVERY)


def init():
    weights = jnp.zeros((LAYERS, D, D))
    return weights, optimizer.init(weights)


def step(weights, state, x):
    def loss(weights, x):
        layer = lambda x, w: (jax.nn.relu(x @ w.astype(jnp.bfloat16)), None)
        return jnp.square(jax.lax.scan(layer, x, weights)[0].astype(jnp.float32)).mean()

    updates, state = optimizer.update(jax.grad(loss)(weights, x), state, weights)
    return optax.apply_updates(weights, updates), state


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((ROWS, D), jnp.bfloat16)
    return sc.predict_step(
        jax.jit(step, donate_argnums=(0, 1)), *jax.eval_shape(init), x, cluster="dgx-h100"
    )
