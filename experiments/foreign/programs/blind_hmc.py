"""Blind: Hamiltonian Monte Carlo, 64 chains of a logistic regression, 1M rows of 64, 10 leapfrogs.

FLOPs of a gradient: forward and transposed product, 2 x 2 x rows x D x chains; the first gradient
and one a leapfrog, and a forward product for each end's energy (Neal, arXiv 1206.1901, figure 2).
Bytes: rows read by each product. float32 as tf32. Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

ROWS, D, CHAINS, LEAPS, SIZE = 2**20, 64, 64, 10, 1e-3
PRODUCT = 2 * ROWS * D * CHAINS
WORK = Work((2 * (LEAPS + 1) + 2) * PRODUCT, (2 * (LEAPS + 1) + 2) * ROWS * D * 4, "tf32")
NOTE = "logits of 1M x 64 are written and read around each of the products"


@jax.jit
def sample(w, x, y, key):
    def energy(w):
        logits = x @ w
        return (jnp.logaddexp(0, logits) - y[:, None] * logits).sum(0) + jnp.square(w).sum(0) / 2

    slope = jax.grad(lambda w: energy(w).sum())

    def leap(_, carry):
        w, p = carry
        w = w + SIZE * p
        return w, p - SIZE * slope(w)

    momentum = jax.random.normal(key, w.shape)
    half = momentum - SIZE / 2 * slope(w)
    new, p = jax.lax.fori_loop(0, LEAPS, leap, (w, half))
    change = energy(w) - energy(new) + (jnp.square(momentum) - jnp.square(p)).sum(0) / 2
    accepted = jnp.log(jax.random.uniform(key, (CHAINS,))) < change
    return jnp.where(accepted, new, w)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return sc.predict_step(
        sample, array(D, CHAINS), array(ROWS, D), array(ROWS), key, cluster="dgx-h100"
    )
