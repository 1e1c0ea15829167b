"""The marginal likelihood of a Gaussian process of 16,384 points: Cholesky and a solve, float32.

FLOPs: squared distances 2 n^2 D, the factorisation n^3/3 and one right side n^2 (LAPACK working
note 41). Bytes: the matrix is made, and factored in place.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

N, D = 16_384, 16


@jax.jit
def likelihood(x, y, width):
    squares = jnp.square(x).sum(-1)
    far = squares[:, None] + squares - 2 * x @ x.T
    factor = jnp.linalg.cholesky(jnp.exp(-far / width) + 1e-2 * jnp.eye(N))
    whitened = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    return jnp.square(whitened).sum() / 2 + jnp.log(jnp.diagonal(factor)).sum()


WORK = Work(2 * N**2 * D + N**3 / 3 + N**2, 3 * 4 * N**2, "tf32")
NOTE = "cuSOLVER's column steps follow each other: the time is by published ones"


def price() -> sc.Prediction:
    x, y, width = (jax.ShapeDtypeStruct(n, jnp.float32) for n in ((N, D), (N,), ()))
    return sc.predict_step(likelihood, x, y, width, cluster="dgx-h100")
