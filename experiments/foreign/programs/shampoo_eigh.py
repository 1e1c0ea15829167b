"""Shampoo in plain JAX: 8 matrices of 2048 x 2048, inverse fourth roots by eigh, on one GPU.

FLOPs: L and R (2 x 2 n^3), V D^-1/4 V^T twice (2 x 2 n^3), L^-1/4 G R^-1/4 (2 x 2 n^3)
a matrix (Gupta et al., arXiv 1802.09568, algorithm 1), and two eigendecompositions by cuSOLVER's
divide and conquer, 14/3 n^3 without deflation (Demmel, Applied Numerical Linear Algebra, 5.3.3);
QR iteration would take 9 n^3 (Golub and Van Loan, Matrix Computations, 8.3).
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

MATRICES, N = 8, 2048


def root(m):
    values, vectors = jnp.linalg.eigh(m + 1e-6 * jnp.eye(N))
    return (vectors * values**-0.25) @ vectors.T


@jax.jit
def step(weights, left, right, grads):
    def one(w, l, r, g):
        l, r = l + g @ g.T, r + g.T @ g
        return w - 1e-3 * root(l) @ g @ root(r), l, r

    return jax.lax.map(lambda of: one(*of), (weights, left, right, grads))


WORK = Work(MATRICES * (12 + 2 * 14 / 3) * N**3, dtype="tf32")
NOTE = "merges of divide and conquer may deflate: the range is of published times"


def price() -> sc.Prediction:
    array = jax.ShapeDtypeStruct((MATRICES, N, N), jnp.float32)
    return sc.predict_step(step, array, array, array, array, cluster="dgx-h100")
