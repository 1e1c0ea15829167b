"""Blind: distrax and Haiku, a RealNVP of 8 masked couplings on 16,384 rows of 64, gradients.

FLOPs of a coupling's MLP (64, 1024, 1024, 2 x 64): 2 x rows x weights; three times (Dinh et al.,
arXiv 1605.08803: one network a coupling), less the gradient of the rows in the coupling that sees
them first. Counted, and committed, before it was priced.
"""

import distrax
import haiku as hk
import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "others"
SOURCE = f"distrax {distrax.__version__}"
ROWS, D, WIDTH, COUPLINGS = 16_384, 64, 1024, 8
WEIGHTS = D * WIDTH + WIDTH**2 + 2 * D * WIDTH
WORK = Work(2 * ROWS * (3 * COUPLINGS * WEIGHTS - D * WIDTH), dtype="tf32")


def flow():
    mask, layers = jnp.arange(D) % 2 == 0, []
    for _ in range(COUPLINGS):
        conditioner = hk.nets.MLP([WIDTH, WIDTH, 2 * D])
        bijector = lambda p: distrax.ScalarAffine(p[..., :D], log_scale=jnp.tanh(p[..., D:]))
        layers.append(distrax.MaskedCoupling(mask, conditioner, bijector))
        mask = ~mask
    base = distrax.MultivariateNormalDiag(jnp.zeros(D), jnp.ones(D))
    return distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers)))


log_prob = hk.without_apply_rng(hk.transform(lambda rows: flow().log_prob(rows)))


@jax.jit
def step(params, rows):
    grads = jax.grad(lambda params: -log_prob.apply(params, rows).mean())(params)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, params, grads)


def price() -> sc.Prediction:
    rows = jax.ShapeDtypeStruct((ROWS, D), jnp.float32)
    params = jax.eval_shape(log_prob.init, jax.random.key(0), rows)
    return sc.predict_step(step, params, rows, cluster="dgx-h100")
