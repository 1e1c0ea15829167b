"""NeRF's network on 65,536 rays of 64 points: 8 layers of 256, positions encoded, gradients.

FLOPs a point: 2 x (60 x 256 + 4 x 256^2 + 316 x 256 + 2 x 256^2 + 256 x 4), three times, less the
gradients of the encoded positions (Mildenhall et al., arXiv 2003.08934, appendix A).
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

RAYS, POINTS, WIDTH, ENCODED = 65_536, 64, 256, 60
SHAPES = ((ENCODED, WIDTH), *((WIDTH, WIDTH),) * 4, (WIDTH + ENCODED, WIDTH),
          *((WIDTH, WIDTH),) * 2, (WIDTH, 4))  # fmt: skip
SKIP = 5


def network(weights, x):
    angles = (x[..., None] * 2.0 ** jnp.arange(10)).reshape(*x.shape[:-1], 30)
    encoded = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).astype(jnp.bfloat16)
    h = encoded
    for i, w in enumerate(weights[:-1]):
        h = jax.nn.relu((jnp.concatenate([h, encoded], -1) if i == SKIP else h) @ w)
    return (h @ weights[-1]).astype(jnp.float32)


@jax.jit
def gradients(weights, points, colours):
    def loss(weights):
        out = network(weights, points)
        dense = jax.nn.softplus(out[..., 3]) / POINTS
        through = jnp.exp(-jnp.cumsum(dense, -1))
        seen = ((through * dense)[..., None] * jax.nn.sigmoid(out[..., :3])).sum(-2)
        return jnp.square(seen - colours).mean()

    return jax.grad(loss)(weights)


PRODUCTS = sum(2 * a * b for a, b in SHAPES)
WORK = Work(RAYS * POINTS * (3 * PRODUCTS - 2 * ENCODED * WIDTH))
NOTE = "256 wide: every layer's activations pass through memory"


def price() -> sc.Prediction:
    weights = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in SHAPES]
    points = jax.ShapeDtypeStruct((RAYS, POINTS, 3), jnp.float32)
    colours = jax.ShapeDtypeStruct((RAYS, 3), jnp.float32)
    return sc.predict_step(gradients, weights, points, colours, cluster="dgx-h100")
