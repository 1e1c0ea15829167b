"""Blind: NeuralGCM's small stochastic model, 2.8 degrees: 32 members a day ahead, one GPU.

The model that its package carries, its `advance` mapped over members and scanned over 24 hours.
FLOPs by `_neuralgcm`, multiplied as tf32. Counted, and committed, before it was priced.
"""

import jax

import scaling as sc
from experiments.foreign.programs import _neuralgcm as gcm
from experiments.foreign.work import Work

NEEDS = "weather"
SOURCE = "neuralgcm/neuralgcm at 8408354"
MEMBERS, HOURS = 32, 24
WORK = Work(MEMBERS * HOURS * gcm.HOUR, dtype="tf32")
NOTE = "each transform is three products of bfloat16 (BF16_BF16_F32_X3), of which one was counted"


def price() -> sc.Prediction:
    model = gcm.model()
    state, sea = gcm.state(model, MEMBERS)
    day = jax.jit(jax.vmap(lambda x, sea: gcm.ahead(model, x, sea, HOURS), (0, None)))
    return sc.predict_step(day, state, sea, cluster="dgx-h100")
