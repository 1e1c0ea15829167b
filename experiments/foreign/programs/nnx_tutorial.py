"""The training step of Flax's NNX introduction, made larger: nnx.jit, nnx.Optimizer, a metric.

FLOPs: 2 x rows x (in x hidden + hidden x out) forward; the same for the gradient of the weights,
and of the second layer's input.
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import scaling as sc
from experiments.foreign.work import Work

ROWS, WIDTH, HIDDEN, OUT = 32_768, 4096, 16_384, 4096


class Model(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, HIDDEN, dtype=jnp.bfloat16, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, OUT, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


@nnx.jit
def train_step(model, optimizer, x, y):
    def loss(model):
        return ((model(x) - y) ** 2).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


WORK = Work(2 * ROWS * (2 * WIDTH * HIDDEN + 3 * HIDDEN * OUT))


def price() -> sc.Prediction:
    model = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))
    optimizer = nnx.eval_shape(lambda: nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param))
    x, y = (jax.ShapeDtypeStruct((ROWS, n), jnp.bfloat16) for n in (WIDTH, OUT))
    return sc.predict_step(train_step, model, optimizer, x, y, cluster="dgx-h100")
