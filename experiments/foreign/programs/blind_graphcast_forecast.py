"""Blind: GraphCast's small model, 1 degree and 13 levels: ten days ahead, one GPU.

The package's model, its 40 steps of six hours in one scan, as in its demonstration. FLOPs by
`_graphcast`, as in blind_graphcast_training, forward; each step is counted whole. State: weights of
4 bytes. Counted, and committed, before it was priced.
"""

import jax

import scaling as sc
from experiments.foreign.programs import _graphcast as weather
from experiments.foreign.work import Work

NEEDS = "weather"
SOURCE = "google-deepmind/graphcast at 9c034db"
AHEAD = 40
WEIGHTS, FLOPS = weather.weights_and_flops()
WORK = Work(AHEAD * FLOPS, state=4 * WEIGHTS)
model = weather.transformed("forecast")


def price() -> sc.Prediction:
    batch = weather.shapes(AHEAD)
    params = jax.eval_shape(model.init, jax.random.key(0), *batch)
    return sc.predict_step(jax.jit(model.apply), params, *batch, cluster="dgx-h100")
