"""The output head and the loss. The vocabulary stays sharded over `tensor` throughout.

    logits = x head^T                                     float32, softcapped where a model says so
    loss   = mean( w (log sum exp(logits) - logit of the target + z (log sum exp(logits))^2) )

    w   weight of a token, 1 on average
    z   weight of the z-loss, which keeps the logits' normaliser near 1 (PaLM, arXiv 2204.02311,
        section 5, with 1e-4)

The logits of a large microbatch are made in chunks of its tokens, each one's gradient at once
(`scaling.models.one_pass`): three products of the head, as without chunks, and never all logits.
"""

# Dims: B batch, S sequence, D model, V vocabulary; N chunks of T tokens each

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.accounting.logits import loss_chunks
from scaling.models.attention_kernels.reference import softcapped
from scaling.models.execution import Execution, axes_of, spec_of
from scaling.models.one_pass import mean_over_chunks
from scaling.models.pipeline.shard_map import on_shards
from scaling.models.sharding import gather_weight

DIMS = ("vocab", "embed")  # of the head, which is stored like the embedding

Targets = tuple[jax.Array, jax.Array | None]  # of tokens: targets, weights


def gather_tokens(execution: Execution, x_BSD: jax.Array) -> jax.Array:
    """Hidden states [B, S, D] as the head takes them: over `tensor` if the vocabulary is not.

    The gradient arrives as one partial sum for each device that has a part of the vocabulary, and
    is reduce-scattered to that of `x_BSD`.
    """
    vocab = execution.rules.axes("vocab")
    dims = ("batch", "sequence") if vocab else ("stream", "residual")
    spec = execution.spec(*dims, None)
    return reshard(x_BSD, P(*spec.partitions, reduced=frozenset(vocab)))


def logits(
    execution: Execution, x_BSD: jax.Array, head_VD: jax.Array, softcap: float = 0.0
) -> jax.Array:
    """float32 logits [B, S, V] of hidden states as `gather_tokens` returns them."""
    return chunk_logits(execution, x_BSD, gather_head(execution, x_BSD, head_VD), softcap)


@dataclass(frozen=True)
class OutputHead:
    """The end of a model, behind its last layer, as losses take it."""

    execution: Execution
    norm: Callable[[jax.Array], jax.Array]
    weight_VD: jax.Array  # as it is stored
    softcap: float = 0.0

    def inputs(self, x_BSD: jax.Array) -> jax.Array:
        """Normalised states of the stream after the last layer, as `gather_tokens` returns them."""
        return gather_tokens(self.execution, self.norm(x_BSD))

    def loss(
        self,
        x_BSD: jax.Array,
        targets_BS: jax.Array,
        weights_BS: jax.Array | None = None,
        z_loss: float = 0.0,
    ) -> tuple[jax.Array, jax.Array]:
        """The losses that `linear_cross_entropy` returns, of the stream after the last layer."""
        with jax.named_scope("head"):
            x_BSD = self.inputs(x_BSD)
        given = targets_BS, weights_BS, z_loss, self.softcap
        return linear_cross_entropy(self.execution, x_BSD, self.weight_VD, *given)


def linear_cross_entropy(
    execution: Execution,
    x_BSD: jax.Array,
    head_VD: jax.Array,
    targets_BS: jax.Array,
    weights_BS: jax.Array | None = None,
    z_loss: float = 0.0,
    softcap: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """The minimised loss per token, and the cross-entropy in it, in nats: float32 scalars.

    Args:
        x_BSD: hidden states as `gather_tokens` returns them, in compute format.
        head_VD: the stored head.
        targets_BS: the next tokens.
        weights_BS: float32 weights, 1 on average over all tokens of a step; None: all 1.
        z_loss: weight of the z-loss.
        softcap: of the logits; 0: none.
    """
    loss = functools.partial(_loss, execution, z_loss, softcap)
    return mean_over_tokens(execution, loss, x_BSD, head_VD, (targets_BS, weights_BS))


def mean_over_tokens(
    execution: Execution,
    loss: Callable[..., tuple[jax.Array, Any]],
    x_BSD: jax.Array,
    head_VD: jax.Array,
    given: Any,
    constants: Any = None,
) -> tuple[jax.Array, Any]:
    """The means of what `loss(gathered head, constants, x, given)` returns of chunks of tokens.

    Args:
        given: arrays of tokens [B, S, ...], such as targets and weights; without gradients.
        constants: arrays that all chunks share; without gradients.
    """
    head_DV = gather_head(execution, x_BSD, head_VD)
    given = jax.tree.map(functools.partial(like_tokens, x_BSD), given)
    chunks = chunks_of(execution, x_BSD, head_DV)
    if chunks == 1:
        return loss(head_DV, constants, x_BSD, given)
    with jax.named_scope("head"):
        x_NTD, given_NT = jax.tree.map(functools.partial(split, chunks), (x_BSD, given))
        return mean_over_chunks(loss, head_DV, constants, x_NTD, given_NT)


def like_tokens(x_BSD: jax.Array, given_BS: jax.Array) -> jax.Array:
    """An array of tokens [B, S, ...], sharded as these are."""
    chex.assert_equal_shape_prefix([x_BSD, given_BS], 2)
    own = spec_of(given_BS)
    return reshard(
        given_BS, P(*spec_of(x_BSD).partitions[:2], *own.partitions[2:], reduced=own.reduced)
    )


def chunks_of(execution: Execution, x_BSD: jax.Array, head_DV: jax.Array) -> int:
    """Chunks in which a device makes the logits of its tokens."""
    size = execution.rules.mesh.size
    tokens = x_BSD.shape[0] * x_BSD.shape[1] // size(axes_of(x_BSD))  # of one device
    return loss_chunks(tokens, head_DV.shape[1] // size(axes_of(head_DV)))


def cross_entropy(
    logits_BSV: jax.Array,
    targets_BS: jax.Array,
    weights_BS: jax.Array | None = None,
    z_loss: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """The minimised loss per token, and the cross-entropy in it, as `linear_cross_entropy`.

    Tokens have one or two dimensions.
    """
    normalizer_BS, target_BS, top_BS = shifted_terms(logits_BSV, targets_BS)
    tokens = spec_of(normalizer_BS)
    weigh = lambda x_BS: x_BS if weights_BS is None else x_BS * reshard(weights_BS, P(*tokens))
    value = weigh(normalizer_BS - target_BS).mean()
    if not z_loss:
        return value, value
    return value + z_loss * weigh(jnp.square(normalizer_BS + top_BS)).mean(), value


def shifted_terms(
    logits_BSV: jax.Array, targets_BS: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The logits' normaliser and the target's logit, both less the largest logit, and that one.

    The target's logit is selected by comparing with a sharded iota, so that no logits are gathered;
    three numbers per token are reduced over `tensor`.
    """
    chex.assert_equal_shape_prefix([logits_BSV, targets_BS], targets_BS.ndim)
    *tokens, vocab = spec_of(logits_BSV)
    targets_BS = reshard(targets_BS, P(*tokens))
    vocab_V = reshard(jnp.arange(logits_BSV.shape[-1], dtype=targets_BS.dtype), P(vocab))
    top_BS = jax.lax.stop_gradient(logits_BSV.max(axis=-1))
    shifted_BSV = logits_BSV - top_BS[..., None]
    normalizer_BS = jnp.log(jnp.exp(shifted_BSV).sum(axis=-1))
    is_target_BSV = targets_BS[..., None] == vocab_V
    return normalizer_BS, jnp.where(is_target_BSV, shifted_BSV, 0).sum(axis=-1), top_BS


def chunk_logits(
    execution: Execution, x: jax.Array, head_DV: jax.Array, softcap: float
) -> jax.Array:
    """float32 logits of tokens [B, S] or [T] with a gathered head."""
    with jax.named_scope("head"):
        return softcapped(_multiply(execution, x, head_DV), softcap)


def _loss(
    execution: Execution,
    z_loss: float,
    softcap: float,
    head_DV: jax.Array,
    _: None,
    x: jax.Array,
    given: Targets,
) -> tuple[jax.Array, jax.Array]:
    """The loss of tokens [B, S] or [T] with a gathered head."""
    logits = chunk_logits(execution, x, head_DV, softcap)
    with jax.named_scope("loss"):
        targets, weights = given
        return cross_entropy(logits, targets, weights, z_loss)


def split(chunks: int, x_BS: jax.Array) -> jax.Array:
    """Each device's tokens in equal chunks, [N, T, ...]; nothing moves."""
    spec = spec_of(x_BS)
    entries = ((entry,) if isinstance(entry, str) else entry or () for entry in spec.partitions[:2])
    tokens = tuple(axis for entry in entries for axis in entry)
    out = P(None, tokens or None, *spec.partitions[2:], reduced=spec.reduced)
    return on_shards(lambda x_bs: x_bs.reshape(chunks, -1, *x_bs.shape[2:]), spec, out, x_BS)


def gather_head(execution: Execution, x_BSD: jax.Array, head_VD: jax.Array) -> jax.Array:
    """The stored head in compute format, whole along d_model and transposed: [D, V].

    It is all-gathered once and saved, because its backward pass follows its forward pass. XLA
    makes a transposed copy of a sum over chunks [V, D] before it is reduce-scattered along D.
    """
    chex.assert_equal_shape_suffix([x_BSD, head_VD], 1)
    with jax.named_scope("head"):
        return gather_weight(execution, head_VD, DIMS, axes_of(x_BSD)).T


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(execution: Execution, x: jax.Array, head_DV: jax.Array) -> jax.Array:
    """x head with a gathered head, of tokens in one or two dimensions.

    The gradient of the logits is rounded to the compute format before the two products of the
    backward pass: else they, and the sum over `tensor`, would run in float32.
    """
    tokens = "bs"[: x.ndim - 1]
    product = jnp.einsum(
        f"{tokens}d,dv->{tokens}v",
        x,
        head_DV,
        out_sharding=P(*spec_of(x).partitions[:-1], *execution.spec("vocab").partitions),
        precision=execution.precision,
        preferred_element_type=jnp.float32,
    )
    # Else XLA multiplies again for the gradient where memory is short (jax 0.10.2, 2026-11-23).
    return jax.lax.optimization_barrier(product)


def _backward(execution: Execution, saved: tuple, gradient: jax.Array) -> tuple:
    x, head_DV = saved
    tokens, spec = "bs"[: x.ndim - 1], spec_of(x)
    product = functools.partial(jnp.einsum, precision=execution.precision)
    gradient = gradient.astype(execution.dtype)
    inputs = P(*spec.partitions, unreduced=spec.reduced)
    head = P(*execution.spec(None, "vocab").partitions, unreduced=axes_of(x))
    dx = product(f"{tokens}v,dv->{tokens}d", gradient, head_DV, out_sharding=inputs)
    dhead_DV = product(f"{tokens}v,{tokens}d->dv", gradient, x, out_sharding=head)
    return dx, dhead_DV


_multiply.defvjp(
    lambda execution, x, head_DV: (_multiply(execution, x, head_DV), (x, head_DV)), _backward
)
