"""Blind: a decoding step of a layer with jax's paged_attention: 64 sequences of 4096.

Bytes: keys and values of 8 heads of 128 in bf16 read once, and the projections' weights. FLOPs: the
projections 2 x 64 x (2 D^2 + 2 D K) and scores and values 4 x 64 x 4096 x D (Kwon et al., arXiv
2309.06180). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.paged_attention import paged_attention

import scaling as sc
from experiments.foreign.work import Work

BATCH, T, HEADS, KV_HEADS, SIZE, PAGE = 64, 4096, 32, 8, 128, 64
D, K = HEADS * SIZE, KV_HEADS * SIZE
WEIGHTS = 2 * D**2 + 2 * D * K
WORK = Work(2 * BATCH * WEIGHTS + 4 * BATCH * T * D, 2 * (2 * BATCH * T * K + WEIGHTS))


@jax.jit
def decode(x, weights, keys, values, table, lengths):
    q = (x @ weights["q"]).reshape(BATCH, HEADS, SIZE)
    new = [(x @ weights[name]).reshape(BATCH, KV_HEADS, SIZE) for name in "kv"]
    page = jnp.take_along_axis(table, lengths[:, None] // PAGE, 1)[:, 0]
    keys, values = (
        pages.at[:, page, lengths % PAGE].set(token.swapaxes(0, 1))
        for pages, token in zip((keys, values), new, strict=True)
    )
    out = paged_attention(q, keys, values, table, lengths)
    return out.reshape(BATCH, D) @ weights["o"], keys, values


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    whole = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
    weights = {"q": array(D, D), "k": array(D, K), "v": array(D, K), "o": array(D, D)}
    pages = array(KV_HEADS, BATCH * T // PAGE, PAGE, SIZE)
    step = jax.jit(decode, donate_argnums=(2, 3))
    return sc.predict_step(
        step, array(BATCH, D), weights, pages, pages, whole(BATCH, T // PAGE), whole(BATCH),
        cluster="dgx-h100",
    )  # fmt: skip
