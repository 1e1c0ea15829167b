"""Blind: WaveNet's stack of 30 dilated convolutions over 16 x 16,000 samples, 256 channels.

FLOPs a sample and layer: a filter of 2 to twice the channels 2 x 2 x C x 2 C, and C to 2 C for skip
and residual 2 x C x 2 C (van den Oord et al., arXiv 1609.03499, figure 4); three times, less the
gradient of the first input. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

LAYERS, C, BATCH, T = 30, 256, 16, 16_000
WORK = Work(BATCH * T * (3 * LAYERS * 12 * C**2 - 8 * C**2))


class WaveNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        skips = 0
        for i in range(LAYERS):
            both = nn.Conv(2 * C, (2,), kernel_dilation=2 ** (i % 10), padding="CAUSAL",
                           dtype=jnp.bfloat16)(x)  # fmt: skip
            value, gate = jnp.split(both, 2, -1)
            out = nn.Dense(2 * C, dtype=jnp.bfloat16)(jnp.tanh(value) * nn.sigmoid(gate))
            residual, skip = jnp.split(out, 2, -1)
            x, skips = x + residual, skips + skip
        return skips


model = WaveNet()


@jax.jit
def gradients(params, x):
    return jax.grad(lambda p: jnp.square(model.apply(p, x).astype(jnp.float32)).mean())(params)


NOTE = "XLA fills dilated filters with zeros: 513 taps for the two of a layer dilated by 512"


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((BATCH, T, C), jnp.bfloat16)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    return sc.predict_step(gradients, params, x, cluster="dgx-h100")
