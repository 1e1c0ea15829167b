"""Blind: a Perceiver's cross attention: 512 latents of 1024 read 50,176 pixels of 256, batch 32.

FLOPs: keys and values 2 x 2 x pixels x 256 x 1024, queries and output 2 x 2 x 512 x 1024^2, scores
and values 2 x 2 x 512 x pixels x 1024 (Jaegle et al., arXiv 2103.03206, section 3.1); three times,
less the gradient of the pixels. Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, PIXELS, C, LATENTS, D, H = 32, 50_176, 256, 512, 1024, 8
KEYS = 2 * 2 * PIXELS * C * D
WORK = Work(BATCH * (3 * (KEYS + 4 * LATENTS * D**2 + 4 * LATENTS * PIXELS * D) - KEYS))
SHAPES = {"latents": (LATENTS, D), "q": (D, D), "k": (C, D), "v": (C, D), "o": (D, D)}


@jax.jit
def gradients(params, pixels):
    def loss(p):
        heads = lambda x: x.reshape(*x.shape[:-1], H, D // H)
        latents = jnp.broadcast_to(p["latents"], (BATCH, LATENTS, D))
        q, k, v = heads(latents @ p["q"]), heads(pixels @ p["k"]), heads(pixels @ p["v"])
        out = jax.nn.dot_product_attention(q, k, v).reshape(BATCH, LATENTS, D)
        return jnp.square((latents + out @ p["o"]).astype(jnp.float32)).mean()

    return jax.grad(loss)(params)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    params = {name: array(*shape) for name, shape in SHAPES.items()}
    return sc.predict_step(gradients, params, array(BATCH, PIXELS, C), cluster="dgx-h100")
