"""SOAP in plain JAX (Adam in Shampoo's eigenbasis, refreshed by one QR), 8 matrices of 2048 x 2048.

FLOPs of products a matrix: G G^T and G^T G (4 n^3), L Q and R Q before each QR (4 n^3), Q^T G Q
(4 n^3) and back (4 n^3), arXiv 2409.11321, algorithm 3; and two QRs with
their Q of 8/3 n^3 (LAPACK working note 41).
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

MATRICES, N = 8, 2048


def one(w, m, v, left, right, ql, qr, g):
    left, right = 0.95 * left + 0.05 * g @ g.T, 0.95 * right + 0.05 * g.T @ g
    ql, qr = jnp.linalg.qr(left @ ql)[0], jnp.linalg.qr(right @ qr)[0]
    seen = ql.T @ g @ qr
    m, v = 0.95 * m + 0.05 * seen, 0.95 * v + 0.05 * seen**2
    return w - 1e-3 * ql @ (m / (jnp.sqrt(v) + 1e-8)) @ qr.T, m, v, left, right, ql, qr


@jax.jit
def step(state, grads):
    return jax.lax.map(lambda of: one(*of), (*state, grads))


WORK = Work(MATRICES * (16 + 16 / 3) * N**3, dtype="tf32")
NOTE = "cuSOLVER's column steps follow each other: the time is by published ones"


def price() -> sc.Prediction:
    array = jax.ShapeDtypeStruct((MATRICES, N, N), jnp.float32)
    return sc.predict_step(step, (array,) * 7, array, cluster="dgx-h100")
