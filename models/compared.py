"""Losses that compare a model with a frozen one: DPO of pairs of answers, and distillation.

    DPO            s = sum of log p of a row's counted tokens        forward, without gradients
                   c = d loss / d s                                  of a whole pair
                   gradients of sum c log p                          a weighted cross-entropy
    distillation   (1 - w) cross-entropy + w T^2 KL                  of each chunk of tokens

So both go through the head in chunks (`scaling.models.head`): DPO multiplies it four times, as its
factors c are known only when a whole row has been seen; distillation that of the teacher once.
"""

# Dims: B batch, S sequence, D model, V vocabulary; N chunks of T tokens each; C pairs

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import reshard

from scaling.models.execution import spec_of
from scaling.models.head import (
    OutputHead,
    chunk_logits,
    chunks_of,
    cross_entropy,
    gather_head,
    like_tokens,
    mean_over_tokens,
    shifted_terms,
    split,
)
from scaling.models.pipeline.shard_map import on_shards

Metrics = dict[str, jax.Array]  # float32 scalars


def log_probs(
    head: OutputHead, x_BSD: jax.Array, targets_BS: jax.Array, weights_BS: jax.Array
) -> jax.Array:
    """The weighted sum of the log-probabilities of each row's targets: float32 [B], no gradients.

    `x_BSD` is the stream after the last layer.
    """
    execution = head.execution
    with jax.named_scope("head"):
        x_BSD, head_VD = jax.lax.stop_gradient((head.inputs(x_BSD), head.weight_VD))
        head_DV = gather_head(execution, x_BSD, head_VD)
        given = like_tokens(x_BSD, targets_BS), like_tokens(x_BSD, weights_BS)
        chunks = chunks_of(execution, x_BSD, head_DV)

    def of_chunk(chunk: tuple) -> jax.Array:
        x, (targets, weights) = chunk
        logits = chunk_logits(execution, x, head_DV, head.softcap)
        with jax.named_scope("loss"):
            normalizer, target, _ = shifted_terms(logits, targets)
            return (target - normalizer) * weights

    if chunks == 1:
        terms_BS = of_chunk((x_BSD, given))
    else:
        in_chunks = jax.tree.map(functools.partial(split, chunks), (x_BSD, given))
        terms_NT, like = jax.lax.map(of_chunk, in_chunks), given[1]
        specs = spec_of(terms_NT), spec_of(like)
        rows = lambda terms_nt, like_bs: terms_nt.reshape(like_bs.shape)
        terms_BS = on_shards(rows, specs, spec_of(like), terms_NT, like)
    return reshard(terms_BS.sum(axis=-1), execution.spec("batch"))


def pair_loss(
    head: OutputHead,
    x_BSD: jax.Array,
    targets_BS: jax.Array,
    weights_BS: jax.Array,
    reference_B: jax.Array,
    beta: float,
) -> tuple[jax.Array, tuple[jax.Array, Metrics]]:
    """DPO of rows that are a chosen and a rejected answer in turn (arXiv 2305.18290, equation 7).

    Returns:
        A surrogate with the gradient of the loss, not its value; the mean loss of the pairs; means
        of their rewards beta (log p - log p of the reference): `reward_margin`, `reward_accuracy`
        (the share of pairs whose chosen answer has the higher one), `chosen_reward`,
        `rejected_reward`.

    Args:
        reference_B: what `log_probs` returns of the reference.
    """
    own_B = log_probs(head, x_BSD, targets_BS, weights_BS)

    def of_pairs(own_b: jax.Array, reference_b: jax.Array) -> tuple[Any, jax.Array]:
        rewards_c2 = beta * (own_b - reference_b).reshape(-1, 2)
        margin_c = rewards_c2[:, 0] - rewards_c2[:, 1]
        slope_c = -beta * jax.nn.sigmoid(-margin_c)
        of_each = jax.nn.softplus(-margin_c), margin_c, rewards_c2[:, 0], rewards_c2[:, 1]
        return of_each, jnp.stack([slope_c, -slope_c], axis=1).reshape(-1)

    with jax.named_scope("loss"):
        rows = spec_of(own_B)
        each = rows, rows, rows, rows
        (loss_C, margin_C, chosen_C, rejected_C), slope_B = on_shards(
            of_pairs, (rows, rows), (each, rows), own_B, reference_B
        )
        metrics = {
            "reward_margin": margin_C.mean(),
            "reward_accuracy": (margin_C > 0).astype(jnp.float32).mean(),
            "chosen_reward": chosen_C.mean(),
            "rejected_reward": rejected_C.mean(),
        }
        # Mean over pairs of sum c log p, as the mean over tokens of weights times cross-entropy.
        factor_BS = weights_BS * (-2 * targets_BS.shape[1] * slope_B)[:, None]
    minimised, _ = head.loss(x_BSD, targets_BS, factor_BS)
    return minimised, (loss_C.mean(), metrics)


def distillation_loss(
    head: OutputHead,
    x_BSD: jax.Array,
    targets_BS: jax.Array,
    weights_BS: jax.Array | None,
    teacher: OutputHead,
    teacher_x_BSD: jax.Array,
    temperature: float,
    weight: float,
    z_loss: float = 0.0,
) -> tuple[jax.Array, tuple[jax.Array, Metrics]]:
    """Cross-entropy mixed with T^2 KL(teacher || model) of the distributions at temperature T.

    Returns:
        What is minimised, per token; the same without the z-loss; its parts `cross_entropy` and
        `kl` (in nats, without T^2).

    Args:
        teacher_x_BSD: the stream after the teacher's last layer.
        weight: of the KL divergence; the cross-entropy has the rest.
    """
    with jax.named_scope("head"):
        x_BSD, teacher_x_BSD = head.inputs(x_BSD), teacher.inputs(teacher_x_BSD)
        teacher_DV = gather_head(teacher.execution, teacher_x_BSD, teacher.weight_VD)

    def loss(head_DV: jax.Array, teacher_DV: jax.Array, x: jax.Array, given: Any) -> tuple:
        targets, weights, teacher_x = given
        logits = chunk_logits(head.execution, x, head_DV, head.softcap)
        of_teacher = chunk_logits(teacher.execution, teacher_x, teacher_DV, teacher.softcap)
        with jax.named_scope("loss"):
            total, entropy = cross_entropy(logits, targets, weights, z_loss)
            kl = _divergence(of_teacher / temperature, logits / temperature)
            kl = (kl if weights is None else kl * weights).mean()
            mixed = weight * temperature**2 * kl - weight * entropy
            return total + mixed, (entropy + mixed, {"cross_entropy": entropy, "kl": kl})

    given = targets_BS, weights_BS, teacher_x_BSD
    return mean_over_tokens(head.execution, loss, x_BSD, head.weight_VD, given, teacher_DV)


def _divergence(logits_V: jax.Array, other_V: jax.Array) -> jax.Array:
    """KL(softmax of logits || softmax of others) of each token [..., V]; three sums over `tensor`
    of each, as of the loss."""
    shifted = lambda x_V: x_V - jax.lax.stop_gradient(x_V.max(axis=-1))[..., None]
    logits_V, other_V = shifted(logits_V), shifted(other_V)
    normalizer = lambda x_V: jnp.exp(x_V).sum(axis=-1)
    total, other = normalizer(logits_V), normalizer(other_V)
    mean = (jnp.exp(logits_V) * (logits_V - other_V)).sum(axis=-1) / total
    return mean - jnp.log(total) + jnp.log(other)
