"""A sparse update: 1,048,576 gradients added to rows of a donated table of 80,000,000 x 32 (10 GB).

Bytes: gradients and row numbers read, rows of the table read and written; the rest of it is not.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

ROWS, D, UPDATES = 80_000_000, 32, 1_048_576


def update(table, rows, grads):
    return table.at[rows].add(-0.1 * grads)


WORK = Work(bytes=UPDATES * (3 * 4 * D + 4))


def price() -> sc.Prediction:
    table, grads = (jax.ShapeDtypeStruct((n, D), jnp.float32) for n in (ROWS, UPDATES))
    rows = jax.ShapeDtypeStruct((UPDATES,), jnp.int32)
    return sc.predict_step(
        jax.jit(update, donate_argnums=0), table, rows, grads, cluster="dgx-h100"
    )
