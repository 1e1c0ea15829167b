"""Blind: optimal transport between 16,384 points by 100 Sinkhorn iterations in the log domain.

FLOPs: the costs 2 n^2 D. Bytes: the matrix of costs is read twice in an iteration (Cuturi, arXiv
1306.0895, algorithm 1). float32. Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

N, D, ITERATIONS, WIDTH = 16_384, 64, 100, 0.05
WORK = Work(2 * N**2 * D, ITERATIONS * 2 * 4 * N**2, "tf32")


@jax.jit
def transport(x, y):
    cost = jnp.square(x).sum(-1)[:, None] + jnp.square(y).sum(-1) - 2 * x @ y.T

    def iteration(carry, _):
        f, g = carry
        f = -WIDTH * jax.nn.logsumexp((g - cost) / WIDTH, axis=1)
        g = -WIDTH * jax.nn.logsumexp((f[:, None] - cost) / WIDTH, axis=0)
        return (f, g), None

    (f, g), _ = jax.lax.scan(iteration, (jnp.zeros(N), jnp.zeros(N)), length=ITERATIONS)
    return f.mean() + g.mean()


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((N, D), jnp.float32)
    return sc.predict_step(transport, x, x, cluster="dgx-h100")
