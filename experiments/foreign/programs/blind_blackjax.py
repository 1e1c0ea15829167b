"""Blind: blackjax's NUTS, one step of 256 chains of a logistic regression, 262,144 rows of 128.

FLOPs: a gradient is two products 2 x 2 x rows x D x chains; at least two leapfrogs of the first
tree (Hoffman and Gelman, arXiv 1111.4246, algorithm 6); how many more only the run tells. float32
as tf32. Counted before it was priced.
"""

import blackjax
import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "science"
SOURCE = "blackjax 1.7.1"
ROWS, D, CHAINS = 2**18, 128, 256
WORK = Work(2 * 2 * 2 * ROWS * D * CHAINS, dtype="tf32")
NOTE = "trees are loops whose length the run tells; both directions are computed by vmap"


def density(w, x, y):
    logits = x @ w
    return (y * logits - jnp.logaddexp(0, logits)).sum() - jnp.square(w).sum() / 2


@jax.jit
def sample(keys, states, x, y):
    nuts = blackjax.nuts(lambda w: density(w, x, y), 1e-3, jnp.ones(D))
    return jax.vmap(nuts.step)(keys, states)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    x, y, keys = array(ROWS, D), array(ROWS), jax.eval_shape(jax.random.split, jax.random.key(0))
    keys = jax.ShapeDtypeStruct((CHAINS,), keys.dtype)
    start = jax.vmap(
        lambda w, x, y: blackjax.nuts.init(w, lambda w: density(w, x, y)), (0, None, None)
    )
    states = jax.eval_shape(start, array(CHAINS, D), x, y)
    return sc.predict_step(sample, keys, states, x, y, cluster="dgx-h100")
