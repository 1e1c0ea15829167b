"""A neural ODE by 50 steps of Runge-Kutta 4 in a scan, gradients through all of them.

FLOPs: 4 evaluations of 2 x 2 x rows x D F a step (Chen et al., arXiv 1806.07366), three passes; the
first input's gradient is computed with the others', in the loop.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

STEPS, ROWS, D, F = 50, 8192, 1024, 4096


def velocity(w, x):
    return jnp.tanh(x @ w[0]) @ w[1]


def solve(w, x):
    def step(x, _):
        a = velocity(w, x)
        b = velocity(w, x + 0.01 * a)
        c = velocity(w, x + 0.01 * b)
        d = velocity(w, x + 0.02 * c)
        return x + 0.02 / 6 * (a + 2 * b + 2 * c + d), None

    return jax.lax.scan(step, x, length=STEPS)[0]


gradients = jax.jit(jax.grad(lambda w, x: jnp.square(solve(w, x).astype(jnp.float32)).mean()))
WORK = Work(STEPS * 4 * 3 * 4 * ROWS * D * F)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    return sc.predict_step(
        gradients, (array(D, F), array(F, D)), array(ROWS, D), cluster="dgx-h100"
    )
