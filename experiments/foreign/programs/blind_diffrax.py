"""Blind: diffrax solves an ODE by Tsit5 in 64 equal steps, its field an MLP on 4096 rows of 256.

FLOPs of an evaluation: 2 x rows x (256 x 1024 + 1024^2 + 1024 x 256). Tsit5 has six stages a step
that are new, its seventh is the first of the next step (Tsitouras, Computers and Mathematics with
Applications 62, 2011), and one evaluation begins: 64 x 6 + 1. The length of the solver's loop is
known to the run alone: it is told. Counted, and committed, before it was priced.
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "others"
SOURCE = f"diffrax {diffrax.__version__}"
ROWS, D, WIDTH, STEPS = 4096, 256, 1024, 64
WORK = Work((6 * STEPS + 1) * 2 * ROWS * (2 * D * WIDTH + WIDTH**2), dtype="tf32")


@eqx.filter_jit
def solve(field, y):
    term = diffrax.ODETerm(lambda t, y, args: jax.vmap(field)(y))
    return diffrax.diffeqsolve(term, diffrax.Tsit5(), t0=0.0, t1=1.0, dt0=1 / STEPS, y0=y).ys


def price() -> sc.Prediction:
    field = eqx.filter_eval_shape(eqx.nn.MLP, D, D, WIDTH, 2, key=jax.random.key(0))
    y = jax.ShapeDtypeStruct((ROWS, D), jnp.float32)
    # Added after the first price, which was open and named them: steps, stages of a step.
    trips = {"while.91": STEPS, "while.96": 6}
    return sc.predict_step(solve, field, y, cluster="dgx-h100", trips=trips)
