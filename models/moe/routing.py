"""Gating: the experts of each token and their weights; losses and bias that balance the load.

    logits   = x router                                   float32, whatever the compute format
    s        = softmax(logits) or sigmoid(logits)         over all experts
    top k    = the k largest of  s + bias                 in the best groups only, if any
    weights  = s of the top k [/ their sum] * scaling     the bias selects, it does not weigh

Mixtral (arXiv 2401.04088) takes the softmax over the top k logits: that is the softmax over all,
divided by the sum of the top k, as Qwen3-MoE writes it. DeepSeek-V3 (arXiv 2412.19437, section
2.1.2) has sigmoids, the bias and the groups; a group's score is the sum of its two largest, in
DeepSeek-V2 (arXiv 2405.04434, section 2.2.2) its largest.

Against uneven load, per layer, averaged over the layers:

    aux loss  E * sum_e f_e P_e      f_e: assignments to e per token, P_e: mean of s_e / sum s;
                                     k if even (Hugging Face's form; that of Switch, arXiv
                                     2101.03961, equation 4, and DeepSeek is 1 / k of it)
    z-loss    mean( logsumexp(logits)^2 )                       ST-MoE, arXiv 2202.08906, equation 5
    bias      bias_e += rate * sign(mean load - load_e)          DeepSeek-V3, once per step

f, P and the load are taken over all tokens of a microbatch on all devices, so no mesh changes them.
Padding of packed documents is no token: it has no expert and no part in these, as in Hugging Face's
loss with an attention mask (transformers, modeling_mixtral.load_balancing_loss_func).
"""

# Dims: E experts, K experts per token, L layers; ... is any shape of tokens

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from scaling.models.config import Moe

TINY = 1e-20  # avoids 0 / 0 where the sigmoids of all selected experts underflow


class Gating(NamedTuple):
    """The experts of each token and their weights."""

    weights: jax.Array  # float32 [..., K], of each selected expert
    experts: jax.Array  # int32 [..., K], best first; E for padding
    probs: jax.Array  # float32 [..., E], the gate's values divided by their sum


class Routing(NamedTuple):
    """Load and balancing losses of one layer; stacked, of each layer."""

    load_E: jax.Array  # float32, assignments to each expert, dropped ones included
    dropped: jax.Array  # float32 scalar, assignments that found no room
    aux_loss: jax.Array  # float32 scalar, before its weight
    z_loss: jax.Array  # float32 scalar, before its weight


def top_k_gating(
    moe: Moe, logits: jax.Array, bias_E: jax.Array | None, is_token: jax.Array | None = None
) -> Gating:
    """The experts of each token and their weights; `bias_E` selects only and gets no gradient.

    `is_token` [...] is False in padding; None: there is none.
    """
    chex.assert_axis_dimension(logits, -1, moe.n_experts)
    gates = jax.nn.softmax(logits) if moe.gate == "softmax" else jax.nn.sigmoid(logits)
    scores = jax.lax.stop_gradient(gates)
    if bias_E is not None:
        scores = scores + jax.lax.stop_gradient(bias_E)
    if moe.groups_per_token < moe.n_groups:
        scores = _in_best_groups(moe, scores)
    _, experts = jax.lax.top_k(scores, moe.experts_per_token)
    weights = jnp.take_along_axis(gates, experts, axis=-1)
    if is_token is not None:
        experts = jnp.where(is_token[..., None], experts, moe.n_experts)
    if moe.normalize_weights:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + TINY)
    probs = gates / (gates.sum(axis=-1, keepdims=True) + TINY)
    return Gating(weights * moe.routed_scaling, experts, probs)


def routing_statistics(
    logits: jax.Array,
    gating: Gating,
    axes: tuple[str, ...],
    dropped: jax.Array,
    is_token: jax.Array | None = None,
) -> Routing:
    """Load and losses over the tokens of all devices, by one all-reduce; inside a `shard_map`.

    `logits` [..., E], `gating`, `dropped` and `is_token` (as `top_k_gating`) are of this device's
    tokens, which `axes` shard.
    """
    experts = logits.shape[-1]
    load_E = jnp.zeros(experts, jnp.float32).at[gating.experts.reshape(-1)].add(1.0, mode="drop")
    z, probs = jnp.square(jax.nn.logsumexp(logits, axis=-1)), gating.probs
    if is_token is not None:
        z, probs = jnp.where(is_token, z, 0), jnp.where(is_token[..., None], probs, 0)
    count = logits.size // experts if is_token is None else is_token.sum()
    scalars = jnp.stack([z.sum(), dropped, jnp.float32(count)])
    probs_E = probs.reshape(-1, experts).sum(axis=0)
    sums = jnp.concatenate([load_E, probs_E, scalars])
    sums = jax.lax.psum(sums, axes) if axes else sums  # one sum over all devices for everything
    load_E, probs_E, (z, dropped, tokens) = jnp.split(sums, [experts, 2 * experts])
    load_E, tokens = jax.lax.stop_gradient(load_E), jnp.maximum(tokens, 1)
    aux_loss = experts * jnp.sum(load_E / tokens * probs_E / tokens)
    return Routing(load_E, jax.lax.stop_gradient(dropped), aux_loss, z / tokens)


def empty_routing(experts: int) -> Routing:
    """The record of zero tokens, for abstract evaluation."""
    return Routing(jnp.zeros(experts, jnp.float32), *[jnp.zeros((), jnp.float32)] * 3)


def updated_selection_bias(bias_LE: jax.Array, load_LE: jax.Array, rate: float) -> jax.Array:
    """The selection biases after a step: up for experts below the mean load, down above it."""
    mean_L1 = load_LE.mean(axis=-1, keepdims=True)
    return bias_LE + rate * jnp.sign(mean_L1 - load_LE)


def _in_best_groups(moe: Moe, scores: jax.Array) -> jax.Array:
    """Scores, minus infinity outside the `groups_per_token` groups with the best experts."""
    grouped = scores.reshape(*scores.shape[:-1], moe.n_groups, -1)
    best = min(moe.best_of_group, grouped.shape[-1])
    group_scores = jax.lax.top_k(grouped, best)[0].sum(axis=-1)
    _, selected = jax.lax.top_k(group_scores, moe.groups_per_token)
    is_open = (selected[..., None] == jnp.arange(moe.n_groups)).any(axis=-2)
    return jnp.where(is_open[..., None], grouped, -jnp.inf).reshape(scores.shape)
