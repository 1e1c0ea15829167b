"""The mean loss of a step's microbatches behind a pipeline, with the output head on all stages.

Microbatches pass the head one after the other, and each one's gradient is computed at once: else
the logits of all of them would be saved, or computed again, until the backward pass begins.
"""

# Dims: M microbatches, T iterations, P stages, B batch, S sequence, D model, V vocabulary

import functools
from typing import Any

import chex
import jax
from flax import nnx

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution
from scaling.models.head import Given, gather_tokens, linear_cross_entropy
from scaling.models.moe.routing import Routing
from scaling.models.one_pass import mean_over_chunks
from scaling.models.pipeline.layers import (
    collect_outputs,
    embed_microbatches,
    embedding_execution,
    head_execution,
    run_pipeline,
    shard_targets,
    unstack_stages,
)
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.models.pipeline.shard_map import STAGE
from scaling.models.remat import rematerialized
from scaling.models.sharding import with_dependency
from scaling.models.transformer import Block, Transformer
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
        layer = rematerialized(functools.partial(_layer, execution), execution)
        layers = params.layers, gathered and gathered.layers
        y_TPBSD, routing = run_pipeline(execution, schedule, layer, layers, x_TPBSD)
    with jax.named_scope("head"):
        x_MBSD = collect_outputs(execution, schedule, y_TPBSD)
        if params.head_VD is None:  # tied: one sum of the gradients of both uses
            head, weight = (tables and tables.table_VD for tables in embedding)
        else:
            head, weight = accumulators(params.head_VD, gathered and gathered.head_VD)
        given = (targets_MBS, weights_MBS)
        given = jax.tree.map(lambda x_MBS: shard_targets(execution, x_MBS), given)
    loss = functools.partial(_loss, head_execution(execution), z_loss)
    losses = mean_over_chunks(loss, (params.final_norm, head), weight, x_MBSD, given)
    return losses, jax.tree.map(unstack_stages, routing)


def _layer(execution: Execution, x_BSD: jax.Array, block: Block) -> tuple[jax.Array, Any]:
    """One layer of a part."""
    tie = execution.remat != "none" and execution.regathers_per_iteration
    return (with_dependency(block, x_BSD) if tie else block)(x_BSD)


def _loss(
    execution: Execution, z_loss: float, head: Head, gathered: Gathered, x_BSD: Any, given: Given
) -> tuple[jax.Array, jax.Array]:
    """The losses of one microbatch."""
    norm, head_VD = head
    with jax.named_scope("head"):
        weight_VD = with_float32_grads(head_VD, gathered)[...]
        x_BSD = gather_tokens(execution, norm(x_BSD))
    targets_BS, weights_BS = given
    return linear_cross_entropy(execution, x_BSD, weight_VD, targets_BS, weights_BS, z_loss)
