"""Blind: gated linear attention in chunks of 128, 8 sequences of 8192, 16 heads of 128, gradients.

FLOPs of a chunk of C and a head of d, forward: scores and their values 4 C^2 d, the state read and
added to 4 C d^2 (Yang et al., arXiv 2312.06635, section 4); three times, for no input is without a
gradient. Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, T, HEADS, SIZE, CHUNK = 8, 8192, 16, 128, 128
WORK = Work(3 * BATCH * HEADS * T * (4 * CHUNK * SIZE + 4 * SIZE**2))
NOTE = "64 chunks one after the other, of batched products of 128 x 128"


def attend(q, k, v, decay):
    def chunk(state, part):
        q, k, v, decay = part
        total = jnp.cumsum(decay, 0)
        mask = jnp.tril(jnp.exp(total[:, None] - total)).astype(q.dtype)
        inner = ((q @ k.T) * mask) @ v
        outer = (q * jnp.exp(total)[:, None].astype(q.dtype)) @ state.astype(q.dtype)
        rest = jnp.exp(total[-1] - total)[:, None].astype(k.dtype)
        state = jnp.exp(total[-1]) * state + ((k * rest).T @ v).astype(jnp.float32)
        return state, inner + outer

    parts = jax.tree.map(lambda x: x.reshape(T // CHUNK, CHUNK, *x.shape[1:]), (q, k, v, decay))
    _, out = jax.lax.scan(chunk, jnp.zeros((SIZE, SIZE)), parts)
    return out.reshape(T, SIZE)


@jax.jit
def gradients(q, k, v, decay):
    def loss(*inputs):
        out = jax.vmap(jax.vmap(attend))(*inputs)
        return jnp.square(out.astype(jnp.float32)).mean()

    return jax.grad(loss, (0, 1, 2, 3))(q, k, v, decay)


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((BATCH, HEADS, T, SIZE), jnp.bfloat16)
    decay = jax.ShapeDtypeStruct((BATCH, HEADS, T), jnp.float32)
    return sc.predict_step(gradients, x, x, x, decay, cluster="dgx-h100")
