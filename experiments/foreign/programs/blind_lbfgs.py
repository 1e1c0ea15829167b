"""Blind: optax.lbfgs with its zoom line search, one update of a linear model, 1M rows of 1024.

FLOPs of value and gradient: 2 x 2 x rows x D (one column), at least twice: at the start and once in
the line search. Bytes: rows read by each of the four products (Liu and Nocedal 1989).
Counted before it was priced.
"""

import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

ROWS, D = 2**20, 1024
WORK = Work(bytes=4 * 4 * ROWS * D)
optimizer = optax.lbfgs()


@jax.jit
def update(w, state, x, y):
    loss = lambda w: jnp.square(x @ w - y).mean()
    value, grad = optax.value_and_grad_from_state(loss)(w, state=state)
    change, state = optimizer.update(grad, state, w, value=value, grad=grad, value_fn=loss)
    return optax.apply_updates(w, change), state


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    state = jax.eval_shape(optimizer.init, array(D))
    return sc.predict_step(update, array(D), state, array(ROWS, D), array(ROWS), cluster="dgx-h100")
