"""MLP-Mixer B/16 in Flax Linen, 256 images, gradients, layers under nn.scan.

FLOPs: 12 layers of 2 x 2 x (S x D x D_S + S x D x D_C) an image, S = 196, D = 768, D_S = 384,
D_C = 3072 (arXiv 2105.01601, table 1), patches 2 x S x 768 x D; three times with gradients, less
the gradient of the images.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

IMAGES, LAYERS, S, D, DS, DC = 256, 12, 196, 768, 384, 3072
bf16 = jnp.bfloat16


def mlp(width, x):
    out = x.shape[-1]
    return nn.Dense(out, dtype=bf16)(nn.gelu(nn.Dense(width, dtype=bf16)(x)))


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        x += mlp(DS, nn.LayerNorm(dtype=bf16)(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + mlp(DC, nn.LayerNorm(dtype=bf16)(x)), None


class Model(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.Conv(D, (16, 16), (16, 16), dtype=bf16)(images).reshape(-1, S, D)
        layers = nn.scan(
            Mixer, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS
        )
        return nn.Dense(1000)(layers()(x, None)[0].mean(1))


model = Model()


@jax.jit
def gradients(params, images):
    return jax.grad(lambda p: jnp.square(model.apply(p, images)).mean())(params)


LAYER = 4 * S * D * (DS + DC)
WORK = Work(IMAGES * (3 * LAYERS * LAYER + 2 * 2 * S * 768 * D))


def price() -> sc.Prediction:
    images = jax.ShapeDtypeStruct((IMAGES, 224, 224, 3), bf16)
    params = jax.eval_shape(model.init, jax.random.key(0), images)
    return sc.predict_step(gradients, params, images, cluster="dgx-h100")
