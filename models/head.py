"""The output head and the loss. The vocabulary stays sharded over `tensor` throughout.

logits = x head^T                                     float32
loss   = mean( log sum exp(logits) - logit of the target )
"""

# Dims: B batch, S sequence, D model, V vocabulary

import functools

import chex
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.execution import Execution, spec_of
from scaling.models.sharding import axes_of, gather_weight

DIMS = ("vocab", "embed")  # of the head, which is stored like the embedding


def token_dims(execution: Execution) -> tuple[str, str]:
    """The logical dimensions of the logits' tokens: over `tensor` if the vocabulary is not."""
    return ("batch", "sequence") if execution.rules.axes("vocab") else ("stream", "residual")


def logits(execution: Execution, x_BSD: jax.Array, head_VD: jax.Array) -> jax.Array:
    """float32 logits [B, S, V] of the last hidden states.

    The head is all-gathered over fsdp once and saved, because its backward pass follows its forward
    pass. The gradient of the logits is rounded to the compute format before the two products of the
    backward pass: else they, and the sum over `tensor`, would run in float32.
    """
    chex.assert_equal_shape_suffix([x_BSD, head_VD], 1)
    return _multiply(execution, x_BSD, gather_weight(execution, head_VD, DIMS, axes_of(x_BSD)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(execution: Execution, x_BSD: jax.Array, head_VD: jax.Array) -> jax.Array:
    return _product(execution, jnp.dtype(jnp.float32), x_BSD, head_VD)


def cross_entropy(
    logits_BSV: jax.Array, targets_BS: jax.Array, weights_BS: jax.Array | None = None
) -> jax.Array:
    """Mean over all tokens of  log sum exp(logits) - logit of the target, in nats: float32 scalar.

    Each token's term is multiplied by its weight, whose mean over the batch is to be 1.

    The target's logit is selected by comparing with a sharded iota, so that no logits are gathered;
    two [B, S] sums over `tensor` are communicated.
    """
    chex.assert_equal_shape_prefix([logits_BSV, targets_BS], 2)
    spec = spec_of(logits_BSV)
    targets_BS = reshard(targets_BS, P(*spec[:2]))
    vocab_V = reshard(jnp.arange(logits_BSV.shape[-1], dtype=targets_BS.dtype), P(spec[2]))
    top_BS = jax.lax.stop_gradient(logits_BSV.max(axis=-1))
    shifted_BSV = logits_BSV - top_BS[..., None]
    normalizer_BS = jnp.log(jnp.exp(shifted_BSV).sum(axis=-1))
    is_target_BSV = targets_BS[..., None] == vocab_V
    target_BS = jnp.where(is_target_BSV, shifted_BSV, 0).sum(axis=-1)
    terms_BS = normalizer_BS - target_BS
    if weights_BS is not None:
        terms_BS = terms_BS * reshard(weights_BS, P(*spec[:2]))
    return terms_BS.mean()


def _product(
    execution: Execution, result: jnp.dtype, x_BSD: jax.Array, head_VD: jax.Array
) -> jax.Array:
    """x head^T with a gathered head."""
    return jnp.einsum(
        "bsd,vd->bsv",
        x_BSD,
        head_VD,
        out_sharding=execution.spec(*token_dims(execution), "vocab"),
        precision=execution.precision,
        preferred_element_type=result,
    )


def _forward(execution: Execution, x_BSD: jax.Array, head_VD: jax.Array) -> tuple:
    return _multiply(execution, x_BSD, head_VD), (x_BSD, head_VD)


def _backward(execution: Execution, saved: tuple, gradient_BSV: jax.Array) -> tuple:
    x_BSD, head_VD = saved
    product = functools.partial(jnp.einsum, precision=execution.precision)
    gradient_BSV = gradient_BSV.astype(execution.dtype)
    over = axes_of(x_BSD)
    dx_BSD = product("bsv,vd->bsd", gradient_BSV, head_VD, out_sharding=spec_of(x_BSD))
    head = P(*execution.spec("vocab", None), unreduced=over)
    dhead_VD = product("bsv,bsd->vd", gradient_BSV, x_BSD, out_sharding=head)
    return dx_BSD, dhead_VD


_multiply.defvjp(_forward, _backward)
