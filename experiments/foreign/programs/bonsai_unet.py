"""Bonsai's UNet in Flax NNX, a training step on 16 images of 256 x 256 in float32, Adam.

FLOPs of a convolution: 2 x taps x c_in x c_out x pixels of its result. Widths 64 to 1024 at 256^2
to 16^2 pixels, two 3 x 3 a level, down and up (Ronneberger et al., arXiv 1505.04597, figure 1), a
2 x 2 transposed convolution of stride 2 (one tap for each pixel) before each level up, a 1 x 1 at
the end; three times, less the gradient of the images. Counted before pricing.
"""

import jax
import jax.numpy as jnp
import optax
from bonsai.models.unet import modeling
from flax import nnx

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "jax-ml/bonsai at 3628425"
IMAGES, SIZE, CHANNELS = 16, 256, 3
WIDTHS = (64, 128, 256, 512, 1024)


def flops() -> float:
    first = 2 * 9 * CHANNELS * WIDTHS[0] * SIZE**2
    total, c_in = 2.0 * WIDTHS[0] * SIZE**2, CHANNELS
    for level, width in enumerate(WIDTHS):
        area, below = (SIZE / 2**level) ** 2, 2 * width
        total += 2 * 9 * area * (c_in * width + width**2)
        if width != WIDTHS[-1]:  # up: from twice the width, beside what came down
            total += 2 * area * (below * width + 9 * (2 * width * width + width**2))
        c_in = width
    return IMAGES * (3 * total - first)


WORK = Work(flops(), dtype="tf32")


def make():
    config = modeling.ModelConfig(in_channels=CHANNELS, num_classes=1)
    model = modeling.UNet(config, rngs=nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-4), wrt=nnx.Param)


@nnx.jit
def step(model, optimizer, images, masks):
    loss = lambda model: optax.sigmoid_binary_cross_entropy(model(images), masks).mean()
    optimizer.update(model, nnx.grad(loss)(model))


def price() -> sc.Prediction:
    array = lambda channels: jax.ShapeDtypeStruct((IMAGES, SIZE, SIZE, channels), jnp.float32)
    state = nnx.eval_shape(make)
    return sc.predict_step(step, *state, array(CHANNELS), array(1), cluster="dgx-h100")
