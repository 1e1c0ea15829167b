"""jax-llm-examples: prefill of 4 prompts of 2048 tokens by Llama 3 8B, tensor-parallel over 8 GPUs.

FLOPs of a token: 2 x the weights, attention 4 T D a layer (einsums over all scores, masked later),
the head 2 V D for every token; an eighth of it on a GPU. Counted before pricing.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.programs._llama3 import GPUS, WEIGHTS, D, L, V, llama, state
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "jax-ml/jax-llm-examples at 8b4b246"
T, BATCH = 2048, 4
WORK = Work(BATCH * T * (2 * WEIGHTS + 4 * L * T * D + 2 * V * D) / GPUS)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100"):
        config, weights, cache = state(T, BATCH)
        tokens = jax.ShapeDtypeStruct((BATCH, T), jnp.int32)
        with jax.set_mesh(config.mesh):
            prefill = jax.jit(llama.forward, donate_argnums=4)  # as in the repository's prefill
            lowered = prefill.lower(tokens, tokens, weights, config, cache)
    return sc.predict_step(lowered, cluster="dgx-h100", tokens=BATCH * T)
