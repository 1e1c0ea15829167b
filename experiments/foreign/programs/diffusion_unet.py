"""A denoising step: a small UNet in Flax Linen predicts the noise of 256 images of 64 x 64, Adam.

Forward: 2 x 9 x c_in x c_out x h x w of each 3 x 3 convolution (Ho et al., arXiv 2006.11239,
appendix B has the shape), twice that backward, less the gradient of the images.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

IMAGES, SIZE, WIDTHS = 256, 64, (128, 256, 512)
conv = partial(nn.Conv, kernel_size=(3, 3), dtype=jnp.bfloat16)


class UNet(nn.Module):
    @nn.compact
    def __call__(self, x, t):
        kept = []
        for width in WIDTHS:
            x = nn.swish(nn.GroupNorm(dtype=jnp.bfloat16)(conv(width)(x)))
            x += nn.Dense(width, dtype=jnp.bfloat16)(t)[:, None, None]
            x = nn.swish(conv(width)(x))
            kept.append(x)
            x = nn.avg_pool(x, (2, 2), (2, 2))
        for width in reversed(WIDTHS):
            n, h, w, c = x.shape
            x = jax.image.resize(x, (n, 2 * h, 2 * w, c), "nearest")
            x = nn.swish(conv(width)(jnp.concatenate([x, kept.pop()], -1)))
        return conv(3)(x)


model, optimizer = UNet(), optax.adam(1e-4)


def init(key):
    params = model.init(key, jnp.zeros((1, SIZE, SIZE, 3), jnp.bfloat16), jnp.zeros((1, 128)))
    return params, optimizer.init(params)


@partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, images, key):
    level_key, noise_key = jax.random.split(key)
    level = jax.random.uniform(level_key, (images.shape[0], 1))
    noise = jax.random.normal(noise_key, images.shape, jnp.bfloat16)
    mixed = jnp.sqrt(1 - level)[..., None, None] * images + jnp.sqrt(level)[..., None, None] * noise
    t = jnp.sin(level * 2.0 ** jnp.arange(128))

    def loss(params):
        return jnp.square(model.apply(params, mixed.astype(jnp.bfloat16), t) - noise).mean()

    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


def flops() -> float:
    area, c_in, total = SIZE**2, 3, 0.0
    for width in WIDTHS:
        total += 18 * area * (c_in * width + width**2)
        area, c_in = area / 4, width
    for width in reversed(WIDTHS):
        area *= 4
        total += 18 * area * (c_in + width) * width
        c_in = width
    total += 18 * area * c_in * 3
    return IMAGES * (3 * total - 18 * SIZE**2 * 3 * WIDTHS[0])


WORK = Work(flops())


def price() -> sc.Prediction:
    state = jax.eval_shape(init, jax.random.key(0))
    images = jax.ShapeDtypeStruct((IMAGES, SIZE, SIZE, 3), jnp.bfloat16)
    return sc.predict_step(step, *state, images, jax.random.key(0), cluster="dgx-h100")
