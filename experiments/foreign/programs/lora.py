"""LoRA of rank 16 on the square matrices of a frozen 32-layer stack of width 4096, gradients.

FLOPs: 2 x rows x D^2 a layer forward and once backward (the frozen weights have no gradient), the
first layer's input has none either; the rank-16 products 2 x 2 x rows x D R, three times
(Hu et al., arXiv 2106.09685).
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

L, ROWS, D, R = 32, 16_384, 4096, 16


def layer(x, w):
    frozen, down, up = w
    return x + jax.nn.gelu(x @ frozen + (x @ down) @ up), None


@jax.jit
def gradients(adapters, frozen, x):
    def loss(adapters):
        return jnp.square(jax.lax.scan(layer, x, (frozen, *adapters))[0].astype(jnp.float32)).mean()

    return jax.grad(loss)(adapters)


WORK = Work(L * ROWS * (2 * 2 * D**2 + 3 * 4 * D * R))


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct((L, *shape), jnp.bfloat16)
    x = jax.ShapeDtypeStruct((ROWS, D), jnp.bfloat16)
    return sc.predict_step(
        gradients, (array(D, R), array(R, D)), array(D, D), x, cluster="dgx-h100"
    )
