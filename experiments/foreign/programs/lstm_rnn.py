"""A language model's LSTM by flax.linen.RNN: 512 sequences of 256 tokens, width 2048, gradients.

FLOPs: 2 x 8 x D^2 a token (four gates, of the input and of the state), three times with gradients,
less the gradient of the embedded input.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

import scaling as sc
from experiments.foreign.work import Work

BATCH, T, D = 512, 256, 2048
model = nn.RNN(nn.OptimizedLSTMCell(D, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16))


@jax.jit
def gradients(params, x):
    return jax.grad(lambda p: jnp.square(model.apply(p, x)).mean())(params)


WORK = Work(2 * BATCH * T * (3 * 8 * D**2 - 4 * D**2))
NOTE = "256 dependent products of 512 rows, forward and backward"


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((BATCH, T, D), jnp.bfloat16)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    return sc.predict_step(gradients, params, x, cluster="dgx-h100")
