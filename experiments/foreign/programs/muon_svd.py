"""Muon's orthogonal factor by an exact SVD, U V^T of a 4096 x 4096 gradient in float32.

FLOPs: 2 n^3 for U V^T, 22 n^3 for the SVD with both factors (Golub and Van Loan, Matrix
Computations, 8.6), all at the rate of float32 vectors, as cuSOLVER computes.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

N = 4096


@jax.jit
def update(weights, grads):
    u, _, v = jnp.linalg.svd(grads, full_matrices=False)
    return weights - 1e-3 * u @ v


WORK = Work(24 * N**3, dtype="fp32")
NOTE = "how often QR iterates is not known: the range is of published times, a factor of 16 wide"


def price() -> sc.Prediction:
    array = jax.ShapeDtypeStruct((N, N), jnp.float32)
    return sc.predict_step(update, array, array, cluster="dgx-h100")
