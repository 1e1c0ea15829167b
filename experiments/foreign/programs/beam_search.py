"""Beam search of an RNN of width 2048: 256 sentences, 4 beams, until all have ended; 64 steps told.

FLOPs a step: 2 x 1024 beams x (2 D^2 + D V). Bytes: the weights once.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

SENTENCES, BEAMS, D, V, STEPS, LONGEST = 256, 4, 2048, 32_000, 64, 256
ROWS = SENTENCES * BEAMS


@jax.jit
def search(embed, w, x):
    def step(carry):
        i, h, scores, tokens = carry
        h = jnp.tanh(embed[tokens[:, i]] @ w[0] + h @ w[1])
        logp = jax.nn.log_softmax((h @ embed.T).astype(jnp.float32))
        every = (scores[:, None] + logp).reshape(SENTENCES, BEAMS * V)
        scores, best = jax.lax.top_k(every, BEAMS)
        came = (jnp.arange(SENTENCES)[:, None] * BEAMS + best // V).ravel()
        tokens = tokens[came].at[:, i + 1].set((best % V).ravel())
        return i + 1, h[came], scores.ravel(), tokens

    going = lambda c: (c[0] < LONGEST - 1) & (c[3][:, c[0]] != 1).any()
    tokens = jnp.zeros((ROWS, LONGEST), jnp.int32)
    return jax.lax.while_loop(going, step, (0, x, jnp.zeros(ROWS), tokens))[3]


WORK = Work(STEPS * 2 * ROWS * (2 * D**2 + D * V), STEPS * 2 * (2 * D**2 + D * V))


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    arguments = array(V, D), array(2, D, D), array(ROWS, D)
    return sc.predict_step(search, *arguments, cluster="dgx-h100", trips={"while": STEPS})
