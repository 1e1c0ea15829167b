"""Blind: principal axes in double precision: a covariance of 2048 features, eigh, LU of the same.

FLOPs: the covariance 2 x rows x n^2, LU 2/3 n^3 (LAPACK working note 41); eigh with vectors is 9
n^3 by the count of Golub and Van Loan (8.3), left out here, for they are not products. On H100
fp64 products run on tensor cores at 66.9 TFLOP/s. Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

ROWS, N = 2**18, 2048
WORK = Work(2 * ROWS * N**2 + 2 / 3 * N**3, ROWS * N * 8, "fp64")
NOTE = "tridiagonalisation is half matrix-vector products, bound by memory and launches"


@jax.jit
def axes(x, y):
    x -= x.mean(0)
    covariance = x.T @ x / (ROWS - 1)
    values, vectors = jnp.linalg.eigh(covariance)
    return values, vectors, jnp.linalg.solve(covariance + jnp.eye(N), y)


def price() -> sc.Prediction:
    with jax.enable_x64():
        x, y = (jax.ShapeDtypeStruct(n, jnp.float64) for n in ((ROWS, N), (N,)))
        return sc.predict_step(axes, x, y, cluster="dgx-h100")
