"""Blind: 16 MLP blocks whose hidden rows wait in host memory for the backward pass, one GPU.

FLOPs: 16 blocks of 2 x 2 x rows x D F, three times with gradients, less the first block's
gradient of the rows; the up product is not computed again, for its result is what was kept.
Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

import scaling as sc
from experiments.foreign.work import Work

BLOCKS, ROWS, D, F = 16, 8192, 4096, 16_384
WORK = Work(2 * ROWS * D * F * (3 * 2 * BLOCKS - 1))
keep = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"],
    offload_src="device", offload_dst="pinned_host",
)  # fmt: skip


def block(x, w):
    hidden = checkpoint_name(x @ w[0], "hidden")
    return x + jax.nn.gelu(hidden) @ w[1], None


@jax.jit
def gradients(weights, x):
    def loss(weights):
        out, _ = jax.lax.scan(jax.checkpoint(block, policy=keep), x, weights)
        return jnp.square(out.astype(jnp.float32)).mean()

    return jax.grad(loss)(weights)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    weights = array(BLOCKS, D, F), array(BLOCKS, F, D)
    return sc.predict_step(gradients, weights, array(ROWS, D), cluster="dgx-h100")
