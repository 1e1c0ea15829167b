"""Blind: explicit axes: 16 blocks of a Megatron MLP over data=2, model=4, gradients.

FLOPs of a GPU: 16 x 2 x 2 x rows x D F / 8, three times, less the gradient of the first rows
(Shoeybi et al., arXiv 1909.08053, section 3). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

BLOCKS, ROWS, D, F = 16, 16_384, 8192, 32_768
WORK = Work(2 * ROWS * D * F / 8 * (3 * 2 * BLOCKS - 1))


def gradients(weights, x):
    def block(x, w):
        hidden = jax.nn.gelu(jnp.einsum("rd,df->rf", x, w[0], out_sharding=P("data", "model")))
        return x + jnp.einsum("rf,fd->rd", hidden, w[1], out_sharding=P("data", None)), None

    def loss(weights):
        out, _ = jax.lax.scan(block, x, weights)
        return jnp.square(out.astype(jnp.float32)).mean()

    return jax.grad(loss)(weights)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100"):
        mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
        array = lambda shape, *spec: jax.ShapeDtypeStruct(
            shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec))
        )
        up, down = array((BLOCKS, D, F), None, None, "model"), array((BLOCKS, F, D), None, "model")
        with jax.set_mesh(mesh):
            return sc.predict_step(
                jax.jit(gradients), (up, down), array((ROWS, D), "data"), cluster="dgx-h100"
            )
