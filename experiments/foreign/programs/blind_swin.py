"""Blind: Swin-B's third stage, 18 blocks of width 512 at 14 x 14 in windows of 7 x 7, batch 256.

FLOPs a position and block: 24 D^2 of the four dense layers, 4 x 49 x D of scores and values (Liu et
al., arXiv 2103.14030, equation 2); three times, less the gradient of the stage's input, counted as
qkv's. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

BLOCKS, D, H, SIDE, WINDOW, BATCH = 18, 512, 16, 14, 7, 256
WORK = Work(BATCH * SIDE**2 * 3 * BLOCKS * (24 * D**2 + 4 * WINDOW**2 * D))


class Block(nn.Module):
    shift: int

    @nn.compact
    def __call__(self, x):
        n, w = SIDE // WINDOW, WINDOW
        dense = lambda width: nn.Dense(width, dtype=jnp.bfloat16)
        y = jnp.roll(nn.LayerNorm(dtype=jnp.bfloat16)(x), (-self.shift,) * 2, (1, 2))
        y = y.reshape(-1, n, w, n, w, D).swapaxes(2, 3).reshape(-1, w * w, D)
        q, k, v = jnp.moveaxis(dense(3 * D)(y).reshape(-1, w * w, 3, H, D // H), 2, 0)
        bias = self.param("bias", nn.initializers.zeros, (H, w * w, w * w))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (D // H) ** -0.5
        weights = nn.softmax(scores + bias.astype(jnp.bfloat16))
        y = dense(D)(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(-1, w * w, D))
        y = y.reshape(-1, n, n, w, w, D).swapaxes(2, 3).reshape(-1, SIDE, SIDE, D)
        x += jnp.roll(y, (self.shift,) * 2, (1, 2))
        return x + dense(D)(nn.gelu(dense(4 * D)(nn.LayerNorm(dtype=jnp.bfloat16)(x))))


model = nn.Sequential([Block(shift=(i % 2) * (WINDOW // 2)) for i in range(BLOCKS)])


@jax.jit
def gradients(params, x):
    return jax.grad(lambda p: jnp.square(model.apply(p, x).astype(jnp.float32)).mean())(params)


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((BATCH, SIDE, SIDE, D), jnp.bfloat16)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    return sc.predict_step(gradients, params, x, cluster="dgx-h100")
