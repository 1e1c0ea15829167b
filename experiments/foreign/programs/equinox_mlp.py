"""Equinox: filter_jit over an MLP of 4 layers and optax's Adam, as in its front page.

FLOPs: 2 x rows x D^2 a layer, three times, less the gradient of the first layer's input.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "levanter"  # brings Equinox
ROWS, D, LAYERS = 16_384, 4096, 4
optimizer = optax.adam(1e-3)


def init():
    model = eqx.nn.MLP(D, D, D, LAYERS - 1, key=jax.random.key(0))
    return model, optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit
def step(model, state, x, y):
    loss = lambda model: jnp.square(jax.vmap(model)(x) - y).mean()
    updates, state = optimizer.update(eqx.filter_grad(loss)(model), state)
    return eqx.apply_updates(model, updates), state


WORK = Work((3 * LAYERS - 1) * 2 * ROWS * D**2, dtype="tf32")


def price() -> sc.Prediction:
    state = eqx.filter_eval_shape(init)
    x = jax.ShapeDtypeStruct((ROWS, D), jnp.float32)
    return sc.predict_step(step, *state, x, x, cluster="dgx-h100")
