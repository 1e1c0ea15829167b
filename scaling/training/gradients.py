"""The gradients of a step: means over its microbatches, sharded like the parameters.

With several microbatches the gradients are accumulated as partial sums per device of `data` (and of
what else copies a weight) and reduced over it once, after the last one; over the axes that shard
the weight they are reduce-scattered each time, because each device stores its shard only (under
ZeRO stage 1 once, after the last one: models/zero.py).

With experts the gradients are those of the loss plus the weighted balancing losses.
"""

# Dims: M microbatches, B sequences of one microbatch, S sequence, D model

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scaling.models.adapters import without_adapters
from scaling.models.compared import Metrics, distillation_loss, log_probs, pair_loss
from scaling.models.head import OutputHead
from scaling.models.moe.routing import Routing
from scaling.models.partial_sums import MARKED, mark_reduced, psum_replicas, zeros_like
from scaling.models.pipeline.loss import (
    Loss,
    PipelineInputs,
    output_head,
    pipeline_gradients,
    pipeline_inputs,
    pipeline_outputs,
)
from scaling.models.transformer import Transformer
from scaling.models.zero import all_gather_params, reduce_scatter_grads
from scaling.run import Train
from scaling.training.monitor.layers import mean_of_losses
from scaling.training.optim.trained import joined, trained_part


class StepOutput(NamedTuple):
    """The measurements of a step: float32."""

    loss: jax.Array  # mean cross-entropy per token in nats, or what `train.loss` says
    routing: Routing | None  # of the layers with experts; load and drops are sums
    parts: Metrics = {}  # what else a loss reports, by name


class Tokens(NamedTuple):
    """One step's input, int32 [M, B, S]; B is sharded over data x fsdp x expert, S over context.

    Inside a microbatch [B, S].

    The tokens of a sequence are in the order of `scaling.models.attention_kernels.zigzag`.
    """

    inputs: jax.Array
    targets: jax.Array
    segments: jax.Array | None = None  # documents that are packed (`scaling.models.documents`)
    weights: jax.Array | None = None  # float32, of each target in the loss; None: all alike


def objective(
    params: Transformer, tokens: Tokens, train: Train, reference: Transformer | None = None
) -> tuple[jax.Array, StepOutput]:
    """The minimised sum of one microbatch's loss, z-loss and balancing losses, all weighted.

    Weights of tokens are those of `normalized`. `reference` is the frozen model of `train.loss`;
    None: `params` without adapters.
    """
    x_BSD, routing = params.hidden_states(tokens.inputs, tokens.segments)
    given: tuple = tokens.targets, tokens.weights
    frozen = _frozen(params, train, reference)
    if frozen is not None:
        with jax.named_scope("reference"):
            frozen = jax.lax.stop_gradient(frozen)
            other_BSD, _ = frozen.hidden_states(tokens.inputs, tokens.segments)
            given = *given, of_frozen(train, frozen.head, other_BSD, given)
    total, output = loss_of(train, frozen and frozen.head, params.head, x_BSD, given)
    return _with_balancing_losses(params, total, routing), output._replace(routing=routing)


def pipelined(
    params: Transformer, tokens: Tokens, train: Train, reference: Transformer | None
) -> tuple[PipelineInputs, Loss]:
    """What a pipeline takes of the tokens [M, B, S], and its loss.

    All microbatches pass the frozen model of `train.loss` before.
    """
    targets = tokens.targets, tokens.weights
    given = pipeline_inputs(params.execution, tokens.inputs, tokens.segments, targets)
    frozen, head = _frozen(params, train, reference), None
    if frozen is not None:
        head = output_head(frozen)
        with jax.named_scope("reference"):
            beside = pipeline_outputs(frozen, given, functools.partial(of_frozen, train))
        given = given._replace(of_head_M=(*given.of_head_M, beside))
    return given, functools.partial(loss_of, train, head)


def _frozen(params: Transformer, train: Train, reference: Transformer | None) -> Any:
    if train.loss is None:
        return None
    return without_adapters(params) if reference is None else reference


def of_frozen(train: Train, head: OutputHead, x_BSD: jax.Array, given: Any) -> jax.Array:
    """What a loss takes of the frozen model: DPO its `log_probs` [B], else its stream [B, S, D].

    Args:
        head, x_BSD: of the frozen model.
        given: targets and weights.
    """
    return log_probs(head, x_BSD, *given) if train.pairs else x_BSD


def loss_of(
    train: Train, frozen: OutputHead | None, head: OutputHead, x_BSD: jax.Array, given: Any
) -> tuple[jax.Array, StepOutput]:
    """The minimised loss of one microbatch's stream after the last layer, and what is reported.

    Args:
        given: targets and weights; of `train.loss` also what `of_frozen` returns.
    """
    targets, weights, *others = given
    if train.loss is None or frozen is None:
        total, loss = head.loss(x_BSD, targets, weights, train.z_loss)
        return total, StepOutput(loss, None)
    (beside,) = others
    if train.pairs:
        compared = pair_loss(head, x_BSD, targets, weights, beside, train.loss.beta)
    else:
        mix = train.loss.temperature, train.loss.weight, train.z_loss
        compared = distillation_loss(head, x_BSD, targets, weights, frozen, beside, *mix)
    total, (loss, parts) = compared
    return total, StepOutput(loss, None, parts)


def normalized(tokens: Tokens, train: Train) -> Tokens:
    """The tokens with weights whose mean over all microbatches is 1; of pairs as they are.

    So the mean of the weighted terms is their weighted mean over the step, however the microbatches
    share the tokens that count. Without any such token all weights, and the loss, are 0.
    """
    if tokens.weights is None or train.pairs:
        return tokens
    with jax.named_scope("loss"):
        total = tokens.weights.sum()
        weights = tokens.weights * (tokens.weights.size / jnp.where(total > 0, total, 1))
    return tokens._replace(weights=weights)


def _with_balancing_losses(
    params: Transformer, total: jax.Array, routing: Routing | None
) -> jax.Array:
    """The total plus the weighted balancing losses of a microbatch, or of means over several."""
    moe = params.config.moe
    if routing is not None and moe is not None:
        with jax.named_scope("loss"):
            total = total + moe.aux_loss * routing.aux_loss.mean()
            total = total + moe.z_loss * routing.z_loss.mean()
    return total


def output_and_gradients(
    params: Transformer,
    tokens: Tokens,
    train: Train,
    trained: Any | None = None,
    reference: Transformer | None = None,
) -> tuple[StepOutput, Transformer]:
    """Means over all microbatches (load and drops: sums), and gradients sharded like `params`.

    The z-loss of the logits is not in the output. `trained` is the mask of what has gradients
    (`scaling.training.optim.trained`), `reference` as of `objective`.
    """
    tokens, rules = normalized(tokens, train), params.execution.rules
    microbatches = tokens.inputs.shape[0]
    is_sum = microbatches > 1 or bool(rules.axes("layers"))
    # ZeRO stage 1: weights gathered for the step, whose gradients are partial sums per device.
    over = (*MARKED, *rules.axes("embed"))
    weights = gathered = mark_reduced(all_gather_params(params, params.execution), over)
    if gathered is None:  # stage 3; of one microbatch gradients are summed over all replicas
        weights = mark_reduced(params, MARKED) if is_sum else params

    def of_part(part: Transformer, tokens: Tokens) -> tuple[jax.Array, StepOutput]:
        model = part if trained is None else joined(part, weights)
        return objective(model, tokens, train, reference)

    if rules.axes("layers"):
        balance = functools.partial(_with_balancing_losses, params, jnp.float32(0))
        given, loss = pipelined(weights, tokens, train, reference)
        output, routing, grads = pipeline_gradients(weights, given, loss, balance)
        output = output._replace(routing=routing)
        grads = trained_part(grads, trained)  # of others nothing is computed: unused sums
    else:
        output, grads = _sums(
            jax.value_and_grad(of_part, has_aux=True), trained_part(weights, trained), tokens
        )
    if gathered is not None:
        with jax.named_scope("gradients"):
            grads = reduce_scatter_grads(grads, trained_part(params, trained), params.execution)
    if not is_sum:
        return output, grads
    with jax.named_scope("gradients"):
        mean = jax.tree.map(lambda g: psum_replicas(g) / microbatches, grads)
    routing = mean_of_losses(output.routing, microbatches)
    loss, parts = jax.tree.map(lambda x: x / microbatches, (output.loss, output.parts))
    return StepOutput(loss, routing, parts), mean


def _sums(
    differentiate: Callable[..., Any], weights: Transformer, tokens: Tokens
) -> tuple[StepOutput, Transformer]:
    """Sums of outputs and gradients over the microbatches; of several in float32.

    `differentiate(weights, tokens of one)` returns ((what is minimised, output), gradients).
    """
    one = jax.tree.map(lambda x_MBS: x_MBS[0], tokens)
    if tokens.inputs.shape[0] == 1:
        (_, output), grads = differentiate(weights, one)
        return output, grads

    def accumulate(total: tuple, tokens: Tokens) -> tuple[tuple, None]:
        (_, output), grads = differentiate(weights, tokens)
        with jax.named_scope("gradients"):
            return jax.tree.map(jnp.add, total, (output, grads)), None

    (_, output), like = jax.eval_shape(differentiate, weights, one)
    like = jax.tree.map(lambda leaf: leaf.update(dtype=jnp.float32), like)
    zeros = jax.tree.map(zeros_like, (output, like))
    return jax.lax.scan(accumulate, zeros, tokens)[0]
