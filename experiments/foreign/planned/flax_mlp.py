"""A residual network in plain Flax with Optax: batch over `data`, hidden units over `model`.

    scaling plan-step experiments/foreign/planned/flax_mlp.py:make --cluster dgx-h100 --nodes 2 \
        --axes data,model --variants "remat=none; remat=full"
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

COLUMNS, ROWS = P(None, "model"), P("model")  # of the first and the second matrix of a block


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.up = nnx.Linear(width, 4 * width, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)

    def __call__(self, x):
        return x + self.down(jax.nn.gelu(self.up(x)))


def make(mesh, width=8192, layers=4, rows=65_536, remat="none"):
    call = nnx.remat(Block.__call__) if remat == "full" else Block.__call__

    @nnx.jit(donate_argnums=(0, 1))
    def step(model, optimizer, x, y):
        def loss(model):
            h = x
            for block in model.layers:
                h = call(block, h)
            return jnp.mean(jnp.square(h - y).astype(jnp.float32))

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    def build():
        model = nnx.Sequential(*[Block(width, nnx.Rngs(0)) for _ in range(layers)])
        return model, nnx.Optimizer(model, optax.adamw(1e-4), wrt=nnx.Param)

    def placed(leaf):
        spec = P() if leaf.ndim < 2 else COLUMNS if leaf.shape[0] < leaf.shape[1] else ROWS
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    model, optimizer = jax.tree.map(placed, nnx.eval_shape(build))
    sharding = NamedSharding(mesh, P("data"))
    x = jax.ShapeDtypeStruct((rows, width), jnp.bfloat16, sharding=sharding)
    return step, (model, optimizer, x, x)
