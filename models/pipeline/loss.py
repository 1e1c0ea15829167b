"""The mean loss of a step's microbatches behind a pipeline, with the output head on all stages.

    pipeline_loss        all forward passes, then the head: jax makes the backward passes of it
    pipeline_gradients   with the gradients, by `scaling.models.pipeline.one_forward_one_backward`

Microbatches pass the head one after the other, and each one's gradient is computed at once: else
the logits of all of them would be saved, or computed again, until the backward pass begins.
"""

# Dims: M microbatches, T iterations, P stages, B batch, S sequence, D model, V vocabulary

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
from flax import nnx

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution
from scaling.models.head import Targets, gather_tokens, linear_cross_entropy
from scaling.models.moe.routing import Routing
from scaling.models.one_pass import mean_over_chunks
from scaling.models.pipeline.layers import (
    collect_outputs,
    embed_microbatch,
    embed_microbatches,
    embedding_execution,
    hand_over,
    head_execution,
    last_outputs,
    run_pipeline,
    shard_targets,
    stack_stages,
    unstack_stages,
)
from scaling.models.pipeline.one_forward_one_backward import OneForwardOneBackward
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.models.pipeline.shard_map import STAGE, take_own
from scaling.models.remat import rematerialized, with_dependency
from scaling.models.transformer import Transformer
from scaling.models.zero import float32_accumulators, with_float32_grads

Head = tuple[nnx.Module, nnx.Variable]  # final norm, head_VD
Gathered = nnx.Variable | None  # head_VD as `scaling.models.zero.all_gather_params` returns it


def pipeline_loss(
    params: Transformer,
    inputs_MBS: jax.Array,
    targets_MBS: jax.Array,
    gathered: Transformer | None = None,
    weights_MBS: jax.Array | None = None,
    z_loss: float = 0.0,
) -> tuple[tuple[jax.Array, jax.Array], Routing | None]:
    """The losses that `linear_cross_entropy` returns, of a model with layers sharded over `stage`.

    And the load of experts, if there are any: sums over microbatches, stacked over the layers.
    Gradients are taken of `params`, as stored; `gathered` are those that
    `models.zero.all_gather_params` returns.
    """
    chex.assert_equal_shape([inputs_MBS, targets_MBS])
    execution = params.execution
    stages, microbatches = execution.rules.mesh.stage, inputs_MBS.shape[0]
    schedule = PipelineSchedule(stages, execution.virtual_stages, microbatches)
    accumulators = functools.partial(float32_accumulators, execution, (*REPLICAS, STAGE))
    with jax.named_scope("embed"):
        embedding = accumulators(params.embedding, gathered and gathered.embedding)
        rules = embedding_execution(execution)
        embed = lambda tokens_BS: with_float32_grads(*embedding)(tokens_BS, rules)
        x_TPBSD = embed_microbatches(execution, schedule, embed, inputs_MBS)
    with jax.named_scope("layers"):
        tie = execution.remat != "none" and execution.regathers_per_iteration
        layer = lambda x_BSD, block: (with_dependency(block, x_BSD) if tie else block)(x_BSD)
        layers = params.layers, gathered and gathered.layers
        y_TPBSD, routing = run_pipeline(
            execution, schedule, rematerialized(layer, execution), layers, x_TPBSD
        )
    with jax.named_scope("head"):
        x_MBSD = collect_outputs(execution, last_outputs(schedule, y_TPBSD))
        if params.head_VD is None:  # tied: one sum of the gradients of both uses
            head, weight = (tables and tables.table_VD for tables in embedding)
        else:
            head, weight = accumulators(params.head_VD, gathered and gathered.head_VD)
        given = (targets_MBS, weights_MBS)
        given = jax.tree.map(lambda x_MBS: shard_targets(execution, x_MBS), given)
    loss = functools.partial(_loss, head_execution(execution), z_loss, params.config.logit_softcap)
    losses = mean_over_chunks(loss, (params.final_norm, head), weight, x_MBSD, given)
    return losses, jax.tree.map(unstack_stages, routing)


def pipeline_gradients(
    params: Transformer,
    inputs_MBS: jax.Array,
    targets_MBS: jax.Array,
    gathered: Transformer | None,
    weights_MBS: jax.Array | None,
    z_loss: float,
    balance: Callable[[Routing | None], jax.Array],
) -> tuple[jax.Array, Routing | None, Transformer]:
    """The cross-entropy and the load of experts, as `pipeline_loss` returns them, by 1F1B; and the
    gradients of the mean over microbatches of what is minimised.

    That is the loss and `balance` of the routing in all layers.
    """
    execution, count = params.execution, inputs_MBS.shape[0]
    (tables, layers), to_params, copies = jax.vjp(
        lambda params: _accumulators(execution, params, gathered), params, has_aux=True
    )
    table_copies, layer_copies = copies or (None, None)
    given_MBS = jax.tree.map(lambda x: shard_targets(execution, x), (targets_MBS, weights_MBS))

    def embed(tables: Any, number: jax.Array) -> jax.Array:
        with jax.named_scope("embed"):
            embedding = with_float32_grads(tables[0], table_copies and table_copies[0])
            return embed_microbatch(execution, embedding, inputs_MBS[number])

    def run(layers: Any, x_PBSD: jax.Array) -> tuple[jax.Array, Any]:
        def layer(x_PBSD: jax.Array, block_P: Any) -> tuple[jax.Array, Any]:
            block = take_own(block_P)
            return jax.vmap(lambda x_BSD: block(x_BSD)(x_BSD))(x_PBSD)

        with jax.named_scope("layers"):
            blocks = with_float32_grads(layers, layer_copies)
            return jax.lax.scan(rematerialized(layer, execution), x_PBSD, blocks)

    def head(tables: Any, y_PBSD: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("head"):
            x_BSD = collect_outputs(execution, y_PBSD[None])[0]
        (own, norm), (copy, _) = _head_of(tables), _head_of(table_copies)
        given = jax.tree.map(lambda x_MBS: x_MBS[number], given_MBS)
        cap = params.config.logit_softcap
        losses = _loss(head_execution(execution), z_loss, cap, (norm, own), copy, x_BSD, given)
        return jax.tree.map(lambda loss: loss / count, losses)

    def hop(x_PBSD: jax.Array, shift: int) -> jax.Array:
        with jax.named_scope("hand_on"):
            return hand_over(execution, x_PBSD, shift)

    pipeline = OneForwardOneBackward(
        stages=execution.rules.mesh.stage,
        microbatches=count,
        tables=tables,
        layers=layers,
        embed=embed,
        run=run,
        head=head,
        hop=hop,
        balance=lambda aux: balance(aux) / count,
    )
    (_, loss), routing, gradients = pipeline.sums_and_gradients()
    return loss, jax.tree.map(unstack_stages, routing), *to_params(gradients)


def _accumulators(
    execution: Execution, params: Transformer, gathered: Transformer | None
) -> tuple[Any, Any]:
    """Tables and layers as `float32_accumulators` returns them, the latter [L, P, ...]."""

    def parts(model: Transformer) -> tuple[Any, Any]:
        tables = model.embedding, model.head_VD, model.final_norm
        return tables, jax.tree.map(stack_stages, model.layers)

    copies = None if gathered is None else parts(gathered)
    return float32_accumulators(execution, (*REPLICAS, STAGE), parts(params), copies)


def _head_of(tables: Any) -> tuple[Any, Any]:
    """The output head, which may be the token table, and the final norm."""
    if tables is None:
        return None, None
    embedding, head_VD, norm = tables
    return embedding.table_VD if head_VD is None else head_VD, norm


def _loss(
    execution: Execution,
    z_loss: float,
    softcap: float,
    head: Head,
    gathered: Gathered,
    x_BSD: Any,
    given: Targets,
) -> tuple[jax.Array, jax.Array]:
    """The losses of one microbatch."""
    norm, head_VD = head
    with jax.named_scope("head"):
        weight_VD = with_float32_grads(head_VD, gathered)[...]
        x_BSD = gather_tokens(execution, norm(x_BSD))
    return linear_cross_entropy(execution, x_BSD, weight_VD, *given, z_loss, softcap)
