"""Blind: a Kalman filter by associative_scan: 65,536 steps of 32 states, float32.

FLOPs: the combination of two elements takes 8 products of 32^3 and a solve or two (Sarkka and
Garcia-Fernandez, arXiv 1905.13002, lemma 8); a scan of n elements combines 2 n of them. Bytes: five
parts of an element, of 32^2 or 32 floats, read and written in the first level.
Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

T, D = 2**16, 32
WORK = Work(2 * T * 8 * 2 * D**3, 3 * 4 * T * 3 * D**2, "tf32")
NOTE = "levels of a scan, each of many small kernels over matrices of 32 x 32, and batched solves"


def combine(first, second):
    a1, b1, c1, e1, j1 = first
    a2, b2, c2, e2, j2 = second
    eye = jnp.eye(D)
    turned = jnp.linalg.solve(eye + c1 @ j2, jnp.broadcast_to(eye, c1.shape))
    left = a2 @ turned
    a = left @ a1
    b = (left @ (b1 + (c1 @ e2[..., None])[..., 0])[..., None])[..., 0] + b2
    c = left @ c1 @ a2.mT + c2
    right = a1.mT @ turned.mT
    e = (right @ (e2 - (j2 @ b1[..., None])[..., 0])[..., None])[..., 0] + e1
    return a, b, c, e, right @ j2 @ a1 + j1


@jax.jit
def smooth(elements):
    return jax.lax.associative_scan(combine, elements)


def price() -> sc.Prediction:
    matrix, vector = (jax.ShapeDtypeStruct(n, jnp.float32) for n in ((T, D, D), (T, D)))
    return sc.predict_step(smooth, (matrix, vector, matrix, vector, matrix), cluster="dgx-h100")
