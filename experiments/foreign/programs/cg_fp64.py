"""Conjugate gradients in fp64 by jax.scipy, a dense system of 16,384 unknowns, 200 iterations told.

The loop ends where the residual is small enough: nobody knows when before it runs. Bytes: the
matrix, 8 n^2, is read in each iteration and once before; products of matrices: none.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

N, ITERATIONS = 16_384, 200


@jax.jit
def solve(matrix, b):
    return jax.scipy.sparse.linalg.cg(lambda x: matrix @ x, b, tol=1e-10)[0]


PRODUCTS = ITERATIONS + 1
WORK = Work(bytes=PRODUCTS * 8 * N**2)


def price() -> sc.Prediction:
    with jax.enable_x64(True):
        matrix, b = (jax.ShapeDtypeStruct(n, jnp.float64) for n in ((N, N), (N,)))
        return sc.predict_step(solve, matrix, b, cluster="dgx-h100", trips={"while": ITERATIONS})
