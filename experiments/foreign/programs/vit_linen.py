"""ViT-B/16 in Flax Linen, 8 GPUs with 128 images each, AdamW, layers under nn.scan.

Forward per image, T = 197 tokens: 12 layers of 2 T x 12 D^2 (projections, MLP) and 4 T^2 D
(attention without a mask), patches 2 x 196 x 768 D (arXiv 2010.11929, table 1); a step is three,
less the gradient of the images.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

IMAGES, LAYERS, D, T = 128, 12, 768, 197
bf16 = jnp.bfloat16


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        x += nn.MultiHeadDotProductAttention(12, dtype=bf16)(nn.LayerNorm(dtype=bf16)(x))
        y = nn.gelu(nn.Dense(4 * D, dtype=bf16)(nn.LayerNorm(dtype=bf16)(x)))
        return x + nn.Dense(D, dtype=bf16)(y), None


class ViT(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.Conv(D, (16, 16), (16, 16), dtype=bf16)(images).reshape(images.shape[0], T - 1, D)
        cls = self.param("cls", nn.initializers.zeros, (1, 1, D)).astype(bf16)
        x = jnp.concatenate([jnp.broadcast_to(cls, (x.shape[0], 1, D)), x], 1)
        x += self.param("position", nn.initializers.normal(0.02), (1, T, D)).astype(bf16)
        layers = nn.scan(
            Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS
        )
        x, _ = layers()(x, None)
        return nn.Dense(1000)(nn.LayerNorm()(x[:, 0]))


model, optimizer = ViT(), optax.adamw(1e-3)


def init(key):
    params = model.init(key, jnp.zeros((1, 224, 224, 3), bf16))
    return params, optimizer.init(params)


@partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, images, labels):
    def loss(params):
        logits = model.apply(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state


LAYER = 2 * T * 12 * D**2 + 4 * T**2 * D
WORK = Work(IMAGES * (3 * LAYERS * LAYER + 2 * 2 * 196 * 768 * D))


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=8", cluster="dgx-h100")
    on = lambda x, *spec: x.update(sharding=NamedSharding(mesh, P(*spec)))
    state = jax.tree.map(on, jax.eval_shape(init, jax.random.key(0)))
    images = jax.ShapeDtypeStruct((8 * IMAGES, 224, 224, 3), bf16)
    labels = jax.ShapeDtypeStruct((8 * IMAGES,), jnp.int32)
    return sc.predict_step(step, *state, on(images, "data"), on(labels, "data"), cluster="dgx-h100")
