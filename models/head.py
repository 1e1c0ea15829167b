"""The output head and the loss. The vocabulary stays cut over `tensor` all the way.

logits = x head^T                                     float32
loss   = mean( log sum exp(logits) - logit of the target )
"""

# Dims: B batch, S sequence, D model, V vocabulary

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from models.layout import Layout

DIMS = ("vocab", "embed")  # of the head, which is stored like the embedding


def sequence_dim(layout: Layout) -> str:
    """How the logits' sequence is cut: a whole vocabulary shares out the sequence instead."""
    return "sequence" if layout.rules.axes("vocab") else "residual"


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def logits(layout: Layout, x_BSD: jax.Array, head_VD: jax.Array) -> jax.Array:
    """float32 logits [B, S, V] of the last hidden states.

    The gradient comes back in float32 and is rounded to the compute format before the two products
    of the backward pass: else they, and the sum over `tensor`, would run in float32.
    """
    return _product(layout, jnp.dtype(jnp.float32), x_BSD, head_VD)


def cross_entropy(logits_BSV: jax.Array, targets_BS: jax.Array) -> jax.Array:
    """Mean over all tokens of  log sum exp(logits) - logit of the target, in nats: float32 scalar.

    The target's logit is picked by comparing with a sharded iota, so that nothing is gathered.
    """
    spec = jax.typeof(logits_BSV).sharding.spec
    targets_BS = reshard(targets_BS, P(*spec[:2]))
    vocab_V = reshard(jnp.arange(logits_BSV.shape[-1], dtype=targets_BS.dtype), P(spec[2]))
    top_BS = jax.lax.stop_gradient(logits_BSV.max(axis=-1))
    shifted_BSV = logits_BSV - top_BS[..., None]
    normalizer_BS = jnp.log(jnp.exp(shifted_BSV).sum(axis=-1))
    hit_BSV = targets_BS[..., None] == vocab_V
    target_BS = jnp.where(hit_BSV, shifted_BSV, 0).sum(axis=-1)
    return (normalizer_BS - target_BS).mean()


def _product(layout: Layout, result: jnp.dtype, x_BSD: jax.Array, head_VD: jax.Array) -> jax.Array:
    out = ("batch", sequence_dim(layout), "vocab")
    return layout.project("bsd,vd->bsv", x_BSD, head_VD, DIMS, out, result=result)


def _forward(layout: Layout, x_BSD: jax.Array, head_VD: jax.Array) -> tuple:
    return logits(layout, x_BSD, head_VD), (x_BSD, head_VD)


def _backward(layout: Layout, kept: tuple, gradient_BSV: jax.Array) -> tuple:
    x_BSD, head_VD = kept
    product = functools.partial(_product, layout, layout.dtype)
    to_x = jax.linear_transpose(lambda x: product(x, head_VD), x_BSD)
    to_head = jax.linear_transpose(lambda head: product(x_BSD, head), head_VD)
    gradient_BSV = gradient_BSV.astype(layout.dtype)
    return *to_x(gradient_BSV), *to_head(gradient_BSV)


logits.defvjp(_forward, _backward)
