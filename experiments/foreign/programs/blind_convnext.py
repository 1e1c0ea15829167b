"""Blind: ConvNeXt-B's third stage in flax.linen, 27 blocks of width 512 at 14 x 14, batch 256.

FLOPs of a block and position: depthwise 7 x 7 2 x 49 x D, two dense 2 x 2 x 4 D^2 (Liu et al.,
arXiv 2201.03545); three times, less the gradient of the first block's input, counted as its
depthwise part. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

BLOCKS, D, SIDE, BATCH = 27, 512, 14, 256
WORK = Work(BATCH * SIDE**2 * (3 * BLOCKS * (2 * 49 * D + 16 * D**2) - 2 * 49 * D))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        kept = x
        x = nn.Conv(D, (7, 7), feature_group_count=D, dtype=jnp.bfloat16)(x)
        x = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        x = nn.gelu(nn.Dense(4 * D, dtype=jnp.bfloat16)(x))
        scale = self.param("scale", nn.initializers.constant(1e-6), (D,))
        return kept + scale.astype(jnp.bfloat16) * nn.Dense(D, dtype=jnp.bfloat16)(x)


model = nn.Sequential([Block() for _ in range(BLOCKS)])


@jax.jit
def gradients(params, x):
    return jax.grad(lambda p: jnp.square(model.apply(p, x).astype(jnp.float32)).mean())(params)


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((BATCH, SIDE, SIDE, D), jnp.bfloat16)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    return sc.predict_step(gradients, params, x, cluster="dgx-h100")
