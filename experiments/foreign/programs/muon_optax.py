"""optax.contrib.muon on 16 matrices of 2048 x 8192, the update alone.

FLOPs: each of 5 Newton-Schulz iterations on n x m has X X^T (2 n^2 m), A A (2 n^3) and its product
with X (2 n^2 m), Keller Jordan's post of Muon.
"""

import jax
import jax.numpy as jnp
import optax
import optax.contrib

import scaling as sc
from experiments.foreign.work import Work

MATRICES, N, M = 16, 2048, 8192
optimizer = optax.contrib.muon(1e-3)


@jax.jit
def update(grads, state, params):
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


WORK = Work(MATRICES * 5 * (4 * N**2 * M + 2 * N**3), dtype="tf32")


def price() -> sc.Prediction:
    params = {f"w{i}": jax.ShapeDtypeStruct((N, M), jnp.float32) for i in range(MATRICES)}
    state = jax.eval_shape(optimizer.init, params)
    return sc.predict_step(update, params, state, params, cluster="dgx-h100")
