"""The mean loss of a step's microbatches behind a pipeline, with the output head on all stages.

Microbatches pass the head one after the other, and each one's gradient is computed at once: else
the logits of all of them would be saved, or computed again, until the backward pass begins.
"""

# Dims: M microbatches, T iterations, P stages, B batch, S sequence, D model, V vocabulary

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec, reshard

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution, spec_of
from scaling.models.head import cross_entropy, logits, token_dims
from scaling.models.moe.routing import Routing
from scaling.models.partial_sums import zeros_like
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
) -> tuple[jax.Array, Routing | None]:
    """Mean cross-entropy per token in nats, float32 scalar; the layers are sharded over `stage`.

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
        targets = shard_targets(execution, targets_MBS)
        under = head_execution(execution)
        value = _mean_loss(under, weight, (params.final_norm, head), x_MBSD, targets)
    return value, jax.tree.map(unstack_stages, routing)


def _layer(execution: Execution, x_BSD: jax.Array, block: Block) -> tuple[jax.Array, Any]:
    """One layer of a part."""
    tie = execution.remat != "none" and execution.regathers_per_iteration
    return (with_dependency(block, x_BSD) if tie else block)(x_BSD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean_loss(
    execution: Execution, gathered: Gathered, head: Head, x_MBSD: jax.Array, targets_MBS: jax.Array
) -> jax.Array:
    loss = lambda one: _loss(execution, gathered, head, *one)
    return jax.lax.map(loss, (x_MBSD, targets_MBS)).mean()


def _loss(
    execution: Execution, gathered: Gathered, head: Head, x_BSD: jax.Array, targets_BS: jax.Array
) -> jax.Array:
    """The mean loss of one microbatch."""
    norm, head_VD = head[0], with_float32_grads(head[1], gathered)[...]
    x_BSD = execution.place(norm(x_BSD), *token_dims(execution), None)
    logits_BSV = logits(execution, x_BSD, head_VD)
    with jax.named_scope("loss"):
        return cross_entropy(logits_BSV, targets_BS)


def _forward(
    execution: Execution, gathered: Gathered, head: Head, x_MBSD: jax.Array, targets_MBS: jax.Array
) -> tuple:
    """The mean loss and, saved for the backward pass, its gradients: no logits are kept."""
    microbatches = x_MBSD.shape[0]
    term = lambda *one: _loss(execution, gathered, *one) / microbatches
    differentiate = jax.value_and_grad(term, argnums=(0, 1))

    def add(total: Any, one: tuple) -> tuple[Any, jax.Array]:
        value, (dhead, dx_BSD) = differentiate(head, *one)
        with jax.named_scope("gradients"):
            return jax.tree.map(jnp.add, total, (value, dhead)), dx_BSD

    value, (like, _) = jax.eval_shape(differentiate, head, x_MBSD[0], targets_MBS[0])
    zeros = jax.tree.map(zeros_like, (value, like))
    (value, dhead), dx_MBSD = jax.lax.scan(add, zeros, (x_MBSD, targets_MBS))
    return value, (dhead, dx_MBSD)


def _backward(execution: Execution, gradients: Any, dloss: jax.Array) -> tuple:
    dhead, dx_MBSD = jax.tree.map(lambda g: _scaled(g, dloss), gradients)
    return None, dhead, dx_MBSD, None


def _scaled(gradient: jax.Array, factor: jax.Array) -> jax.Array:
    """Their product; of a gradient's partial sums each."""
    partial = spec_of(gradient).unreduced
    return gradient * reshard(factor.astype(gradient.dtype), PartitionSpec(reduced=partial))


_mean_loss.defvjp(_forward, _backward)
