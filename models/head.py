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

from scaling.models.execution import Execution
from scaling.models.sharding import axes_of, gather_weight

DIMS = ("vocab", "embed")  # of the head, which is stored like the embedding


def sequence_dim(execution: Execution) -> str:
    """How the logits' sequence is cut: a whole vocabulary shares out the sequence instead."""
    return "sequence" if execution.rules.axes("vocab") else "residual"


def logits(execution: Execution, x_BSD: jax.Array, head_VD: jax.Array) -> jax.Array:
    """float32 logits [B, S, V] of the last hidden states.

    The head is gathered once, because its backward pass follows its forward pass. Its gradient
    comes back in float32 and is rounded to the compute format before the two products of the
    backward pass: else they, and the sum over `tensor`, would run in float32.
    """
    return _multiply(execution, x_BSD, gather_weight(execution, head_VD, DIMS, axes_of(x_BSD)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(execution: Execution, x_BSD: jax.Array, whole_VD: jax.Array) -> jax.Array:
    return _product(execution, jnp.dtype(jnp.float32), x_BSD, whole_VD)


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


def _product(
    execution: Execution, result: jnp.dtype, x_BSD: jax.Array, whole_VD: jax.Array
) -> jax.Array:
    """x head^T with a head that is already gathered."""
    return jnp.einsum(
        "bsd,vd->bsv",
        x_BSD,
        whole_VD,
        out_sharding=execution.spec("batch", sequence_dim(execution), "vocab"),
        precision=execution.precision,
        preferred_element_type=result,
    )


def _forward(execution: Execution, x_BSD: jax.Array, whole_VD: jax.Array) -> tuple:
    return _multiply(execution, x_BSD, whole_VD), (x_BSD, whole_VD)


def _backward(execution: Execution, kept: tuple, gradient_BSV: jax.Array) -> tuple:
    x_BSD, whole_VD = kept
    product = functools.partial(jnp.einsum, precision=execution.precision)
    gradient_BSV = gradient_BSV.astype(execution.dtype)
    over = axes_of(x_BSD)
    to_x_BSD = product(
        "bsv,vd->bsd", gradient_BSV, whole_VD, out_sharding=jax.typeof(x_BSD).sharding.spec
    )
    head = P(*execution.spec("vocab", None), unreduced=over)
    to_head_VD = product("bsv,bsd->vd", gradient_BSV, x_BSD, out_sharding=head)
    return to_x_BSD, to_head_VD


_multiply.defvjp(_forward, _backward)
