"""ResNet-50 in Flax Linen, pmap over 8 GPUs, 128 images of 224 x 224 each, SGD with momentum.

Forward: 2 x k^2 x c_in x c_out x h x w of each convolution in table 1 of He et al.
(arXiv 1512.03385), stride in the 3 x 3 convolution. A step is three forward passes, less the
gradient of the images.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

IMAGES = 128
STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))  # width, blocks, size


class Block(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, x):
        conv = partial(nn.Conv, use_bias=False, dtype=jnp.bfloat16)
        norm = partial(nn.BatchNorm, use_running_average=False, dtype=jnp.bfloat16)
        y = nn.relu(norm()(conv(self.width, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.width, (3, 3), (self.stride, self.stride))(y)))
        y = norm()(conv(4 * self.width, (1, 1))(y))
        if x.shape != y.shape:
            x = norm()(conv(4 * self.width, (1, 1), (self.stride, self.stride))(x))
        return nn.relu(x + y)


class ResNet50(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False, dtype=jnp.bfloat16)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False, dtype=jnp.bfloat16)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for i, (width, blocks, _) in enumerate(STAGES):
            for j in range(blocks):
                x = Block(width, 2 if i and not j else 1)(x)
        return nn.Dense(1000)(x.mean((1, 2)))


model, optimizer = ResNet50(), optax.sgd(0.1, momentum=0.9)


def init(key):
    variables = model.init(key, jnp.zeros((1, 224, 224, 3), jnp.bfloat16))
    return variables, optimizer.init(variables["params"])


def step(variables, state, images, labels):
    def loss(params):
        logits, new = model.apply({**variables, "params": params}, images, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

    (_, new), grads = jax.value_and_grad(loss, has_aux=True)(variables["params"])
    updates, state = optimizer.update(jax.lax.pmean(grads, "batch"), state)
    return {"params": optax.apply_updates(variables["params"], updates), **new}, state


def flops() -> float:
    first, total, c_in = 2 * 49 * 3 * 64 * 112**2, 2.0 * 2048 * 1000, 64
    for width, blocks, size in STAGES:
        entry = 1 if width == 64 else 4  # the first 1 x 1 convolution still sees the larger picture
        area, out = size**2, 4 * width
        total += 2 * area * (entry * c_in * width + 9 * width**2 + width * out + c_in * out)
        total += 2 * area * (blocks - 1) * (2 * out * width + 9 * width**2)
        c_in = out
    return IMAGES * (3 * total + 2 * first)


WORK = Work(flops())


def price() -> sc.Prediction:
    state = jax.eval_shape(init, jax.random.key(0))
    batch = jnp.zeros((IMAGES, 224, 224, 3), jnp.bfloat16), jnp.zeros(IMAGES, jnp.int32)
    each = lambda x: jax.ShapeDtypeStruct((8, *x.shape), x.dtype)
    arguments = jax.tree.map(each, (*state, *batch))
    with sc.pretend("dgx-h100"):
        train = jax.pmap(step, axis_name="batch", donate_argnums=(0, 1))
        return sc.predict_step(train, *arguments, cluster="dgx-h100")
