"""jax-llm-examples: one token of 16 sequences by Llama 3 8B, its decode_step, TP 8, cache of 4096.

Bytes: an eighth of the weights, of the head (D V) and of the cache (2 x 16 x 4096 x L G K), bf16.
FLOPs: 2 x 16 x those weights, and of the attention, whose 4 heads that share keys are a product,
4 x 16 x L T D; an eighth. Counted before pricing.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.programs._llama3 import GPUS, WEIGHTS, D, G, K, L, V, llama, state
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "jax-ml/jax-llm-examples at 8b4b246"
T, BATCH = 4096, 16
READ = WEIGHTS + D * V + 2 * BATCH * T * L * G * K
WORK = Work(2 * BATCH * (WEIGHTS + D * V + 2 * L * T * D) / GPUS, 2 * READ / GPUS)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100"):
        config, weights, cache = state(T, BATCH)
        tokens = jax.ShapeDtypeStruct((BATCH, 1), jnp.int32)
        with jax.set_mesh(config.mesh):
            lowered = llama.decode_step.lower(tokens, weights, cache, config)
    return sc.predict_step(lowered, cluster="dgx-h100", tokens=BATCH)
