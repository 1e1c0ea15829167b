"""A layer of 32 experts by jax.lax.ragged_dot, 32,768 tokens, two experts each, one GPU.

FLOPs: 2 x 2 x tokens x 2 D F, the two products of the experts chosen (Gale et al., arXiv
2211.15841, dropless), and the router's 2 x tokens x D E.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

TOKENS, E, CHOSEN, D, F = 32_768, 32, 2, 1024, 4096


@jax.jit
def layer(x, router, up, down):
    weights, experts = jax.lax.top_k(jax.nn.softmax((x @ router).astype(jnp.float32)), CHOSEN)
    order = jnp.argsort(experts.ravel())
    sizes = jnp.bincount(experts.ravel(), length=E)
    hidden = jax.nn.gelu(jax.lax.ragged_dot(x[order // CHOSEN], up, sizes))
    out = jax.lax.ragged_dot(hidden, down, sizes)
    scaled = out * weights.ravel()[order, None].astype(out.dtype)
    return jnp.zeros_like(x).at[order // CHOSEN].add(scaled)


WORK = Work(TOKENS * (2 * CHOSEN * 2 * D * F + 2 * D * E))
NOTE = "XLA of this version expands ragged_dot over all experts on this chip"


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    shapes = (TOKENS, D), (D, E), (E, D, F), (E, F, D)
    return sc.predict_step(layer, *(array(*shape) for shape in shapes), cluster="dgx-h100")
