"""One step of a DCGAN's generator: 1024 images of 64 x 64, transposed convolutions, both networks.

Forward of each network: 2 x 16 x c x c' x (positions of the smaller picture) of each 4 x 4
convolution (Radford et al., arXiv 1511.06434, figure 1). The generator's step is three passes of
the generator; of the discriminator forward and gradients of its input.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

IMAGES, WIDTHS, Z = 1024, (1024, 512, 256, 128, 3), 128
bf16 = jnp.bfloat16


class Generator(nn.Module):
    @nn.compact
    def __call__(self, z):
        x = nn.Dense(4 * 4 * WIDTHS[0], dtype=bf16)(z).reshape(-1, 4, 4, WIDTHS[0])
        for width in WIDTHS[1:]:
            x = nn.ConvTranspose(width, (4, 4), (2, 2), dtype=bf16)(nn.relu(x))
        return jnp.tanh(x)


class Discriminator(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in reversed(WIDTHS[:-1]):
            x = nn.leaky_relu(nn.Conv(width, (4, 4), (2, 2), dtype=bf16)(x))
        return nn.Dense(1)(x.reshape(x.shape[0], -1))


generator, discriminator = Generator(), Discriminator()


@jax.jit
def step(params, judge, z):
    loss = lambda p: jax.nn.softplus(-discriminator.apply(judge, generator.apply(p, z))).mean()
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, jax.grad(loss)(params))


CONVOLUTIONS = sum(2 * 16 * a * b * (4 * 2**i) ** 2 for i, (a, b) in enumerate(pairwise(WIDTHS)))
WORK = Work(IMAGES * (5 * CONVOLUTIONS + 2 * 2 * Z * 16 * WIDTHS[0]))
NOTE = "XLA puts zeros between the pixels of a transposed convolution and multiplies them: 4 x"


def price() -> sc.Prediction:
    z = jax.ShapeDtypeStruct((IMAGES, Z), bf16)
    params = jax.eval_shape(generator.init, jax.random.key(0), z)
    picture = jax.ShapeDtypeStruct((IMAGES, 64, 64, 3), bf16)
    judge = jax.eval_shape(discriminator.init, jax.random.key(0), picture)
    return sc.predict_step(step, params, judge, z, cluster="dgx-h100")
