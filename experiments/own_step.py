"""Price a training step that is not ours, for 64 H100 that are not here.

    JAX_PLATFORMS=cpu python -m experiments.own_step

Any jitted function will do: here a two-layer MLP in plain JAX, whose hidden layer is cut over
`model`, whose batch over `data`, with gradients and a plain SGD update, state donated.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported: no GPU is needed

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc

BATCH, WIDTH, HIDDEN = 65_536, 8192, 32_768
RATE = 1e-3


def loss(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error of a two-layer MLP in bf16."""
    up, down = (weights[name].astype(jnp.bfloat16) for name in ("up", "down"))
    with jax.named_scope("mlp"):
        out = jax.nn.gelu(x @ up) @ down
    return jnp.mean(jnp.square(out - y).astype(jnp.float32))


def step(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """One step of SGD."""
    gradients = jax.grad(loss)(weights, x, y)
    with jax.named_scope("optimizer"):
        return jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)


def arguments(mesh: jax.sharding.Mesh) -> tuple:
    """Shapes and shardings of everything that the step takes; no array is made."""

    def array(shape: tuple[int, ...], dtype: jax.typing.DTypeLike, spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    weights = {
        "up": array((WIDTH, HIDDEN), jnp.float32, P(None, "model")),
        "down": array((HIDDEN, WIDTH), jnp.float32, P("model", None)),
    }
    batch = array((BATCH, WIDTH), jnp.bfloat16, P("data", None))
    return weights, batch, batch


def main() -> sc.Prediction:
    """Compile, price, print; returns the prediction."""
    mesh = sc.device_mesh("data=8,model=8", cluster="dgx-h100", nodes=8)
    jitted = jax.jit(step, donate_argnums=0)
    prediction = sc.predict_step(
        jitted, *arguments(mesh), cluster="dgx-h100", nodes=8, name="own step"
    )
    print(prediction)
    return prediction


if __name__ == "__main__":
    main()
