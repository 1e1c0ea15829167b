"""optax.adafactor updates 4 stacks of 8192 x 8192 weights; no products, memory alone.

Bytes: gradients and weights are read and weights written, 3 x 4 a parameter; rows and columns of
the factored moments are small (Shazeer and Stern, arXiv 1804.04235).
"""

import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

MATRICES, N = 4, 8192
optimizer = optax.adafactor(1e-3)


def update(grads, state, params):
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


WORK = Work(bytes=12 * MATRICES * N**2)
NOTE = "means over rows, columns and blocks make it pass several times over gradients and updates"


def price() -> sc.Prediction:
    params = [jax.ShapeDtypeStruct((N, N), jnp.float32)] * MATRICES
    state = jax.eval_shape(optimizer.init, params)
    step = jax.jit(update, donate_argnums=(1, 2))
    return sc.predict_step(step, params, state, params, cluster="dgx-h100")
