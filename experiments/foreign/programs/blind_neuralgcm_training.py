"""Blind: NeuralGCM's small stochastic model: gradients through 6 hours, 8 members, one GPU.

The model that its package carries; the squared distance to states six hours later, its gradient by
all weights. FLOPs by `_neuralgcm`, as tf32: three times, and the dynamics' explicit terms, which
the package checkpoints, again. Counted, and committed, before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.programs import _neuralgcm as gcm
from experiments.foreign.work import Work

NEEDS = "weather"
SOURCE = "neuralgcm/neuralgcm at 8408354"
MEMBERS, HOURS = 8, 6
WORK = Work(MEMBERS * HOURS * (3 * gcm.HOUR + gcm.TERMS), dtype="tf32")
NOTE = "a transform is three products of bfloat16, and its bases are constants: no gradient by them"


def loss(model, states, sea, targets):
    later = jax.vmap(lambda x: gcm.ahead(model, x, sea, HOURS))(states)
    gaps = jax.tree.map(lambda x, y: jnp.square(x - y).mean(), later.state, targets)
    return jax.tree.reduce(jnp.add, gaps)


def price() -> sc.Prediction:
    model = gcm.model()
    states, sea = gcm.state(model, MEMBERS)
    step = jax.jit(jax.value_and_grad(loss))
    return sc.predict_step(step, model, states, sea, states.state, cluster="dgx-h100")
