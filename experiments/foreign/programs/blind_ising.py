"""Blind: the Ising model on 16,384^2 spins, checkerboard Metropolis, 50 sweeps, one GPU, int8.

No products. Bytes: each of 100 half sweeps reads and writes every spin at least, 2 x 16,384^2
(Yang et al., arXiv 1903.11714, has the scheme). Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

SIDE, SWEEPS, COLD = 16_384, 50, 0.44
WORK = Work(bytes=SWEEPS * 2 * 2 * SIDE**2)
NOTE = "a random word for each spin costs more integer arithmetic than the bytes of the spins"


def sweep(i, carry):
    spins, key = carry
    key, used = jax.random.split(key)
    around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
    flips = jax.random.uniform(used, spins.shape) < jnp.exp(-2 * COLD * (spins * around))
    row, column = jnp.ogrid[:SIDE, :SIDE]
    return jnp.where(flips & ((row + column) % 2 == i % 2), -spins, spins), key


def run(spins, key):
    return jax.lax.fori_loop(0, 2 * SWEEPS, sweep, (spins, key))[0]


def price() -> sc.Prediction:
    spins, key = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.int8), jax.eval_shape(jax.random.key, 0)
    return sc.predict_step(jax.jit(run, donate_argnums=0), spins, key, cluster="dgx-h100")
