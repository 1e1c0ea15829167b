"""Blind: GraphCast's small model, 1 degree and 13 levels: gradients through 18 hours, one GPU.

The package's model and loss, as in its demonstration, and AdamW; a step of six hours is computed
again for its gradients. FLOPs by `_graphcast`: 5 refinements, 65,160 points that read 186 channels
(83 of two times, 5 forcings of three, 2 that stay, 3 of place) and give 83; four times, three
steps. Weights are float32, multiplied as bfloat16; state 12 bytes of each. Counted, and committed,
before it was priced.
"""

import jax
import optax

import scaling as sc
from experiments.foreign.programs import _graphcast as weather
from experiments.foreign.work import Work

NEEDS = "weather"
SOURCE = "google-deepmind/graphcast at 9c034db"
HOURS = 18
WEIGHTS, FLOPS = weather.weights_and_flops()
WORK = Work(HOURS / 6 * 4 * FLOPS, state=12 * WEIGHTS)
model = weather.transformed("loss")
optimizer = optax.adamw(1e-3)


@jax.jit
def step(params, state, *batch):
    loss, gradients = jax.value_and_grad(model.apply)(params, *batch)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def price() -> sc.Prediction:
    batch = weather.shapes(HOURS // 6)
    params = jax.eval_shape(model.init, jax.random.key(0), *batch)
    state = jax.eval_shape(optimizer.init, params)
    return sc.predict_step(step, params, state, *batch, cluster="dgx-h100")
