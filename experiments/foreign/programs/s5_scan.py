"""A layer of S5 (diagonal complex state space) by associative_scan: 16 x 16,384 steps, 256 states.

FLOPs: 2 x 2 real products in, 2 x 2 out, of 2 T D N each (the complex ones by parts; Smith et al.,
arXiv 2208.04933). Bytes: T x N complex states written and read.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, T, D, N = 16, 16_384, 512, 256


@jax.jit
def layer(inward, outward, decay, x):
    drive = x @ inward[0] + 1j * (x @ inward[1])
    keep = jnp.broadcast_to(jnp.exp(-jnp.abs(decay) + 1j * decay), drive.shape)
    combine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])
    _, states = jax.lax.associative_scan(combine, (keep, drive), axis=1)
    return states.real @ outward[0] - states.imag @ outward[1]


WORK = Work(BATCH * T * 4 * 2 * D * N, BATCH * T * N * 8 * 2, "tf32")
NOTE = "steps of the associative scan pass over the states log2 T times"


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    arrays = array(2, D, N), array(2, N, D), array(N), array(BATCH, T, D)
    return sc.predict_step(layer, *arrays, cluster="dgx-h100")
