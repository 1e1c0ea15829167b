"""The mean loss of a step's microbatches behind a pipeline, whose head all stages share.

Microbatches go through the head one after the other, and each one's gradient is taken at once:
else the logits of all of them would be kept, or computed again, until the backward pass begins.
"""

# Dims: M microbatches, B batch, S sequence, D model, V vocabulary

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec, reshard

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution
from scaling.models.head import cross_entropy, logits, sequence_dim
from scaling.models.moe.routing import Routing
from scaling.models.partial_sums import zeros_like
from scaling.models.pipeline.layers import (
    as_stored,
    embedding_execution,
    entered,
    head_execution,
    left,
    left_targets,
    run,
)
from scaling.models.pipeline.schedule import Ticks
from scaling.models.pipeline.shard_map import AXIS
from scaling.models.remat import rematerialized
from scaling.models.sharding import with_dependency
from scaling.models.transformer import Block, Transformer
from scaling.models.zero import float32_accumulators, with_float32_grads

Head = tuple[nnx.Module, nnx.Variable]  # final norm, head_VD
Whole = nnx.Variable | None  # head_VD as `scaling.models.zero.all_gather_params` made it


def pipeline_loss(
    params: Transformer,
    inputs_MBS: jax.Array,
    targets_MBS: jax.Array,
    whole: Transformer | None = None,
) -> tuple[jax.Array, Routing | None]:
    """Mean cross-entropy per token in nats, float32 scalar; the layers are cut over `stage`.

    And how experts were used, if there are any: sums over microbatches, stacked over the layers.

    Args:
        whole: the parameters as `models.zero.all_gather_params` made them; gradients are
            those of `params`.
    """
    execution, entry = params.execution, embedding_execution(params.execution)
    ticks = Ticks(execution.rules.mesh.stage, execution.virtual_stages, inputs_MBS.shape[0])
    everywhere = *REPLICAS, AXIS
    with jax.named_scope("embed"):
        embedding = float32_accumulators(
            execution, everywhere, params.embedding, whole and whole.embedding
        )
        embed = lambda tokens_BS: with_float32_grads(*embedding)(tokens_BS, entry)
        x_TPBSD = entered(execution, ticks, embed, inputs_MBS)
    with jax.named_scope("layers"):
        layer = rematerialized(functools.partial(_layer, execution), execution)
        layers = params.layers, whole and whole.layers
        y_TPBSD, routing = run(execution, ticks, layer, layers, x_TPBSD)
    with jax.named_scope("head"):
        x_MBSD = left(execution, ticks, y_TPBSD)
        if params.head_VD is None:  # tied: one sum of the gradients of both uses
            own, copy = (tables and tables.table_VD for tables in embedding)
        else:
            own, copy = float32_accumulators(
                execution, everywhere, params.head_VD, whole and whole.head_VD
            )
        head, tokens = (params.final_norm, own), left_targets(execution, targets_MBS)
        value = _mean_loss(head_execution(execution), copy, head, x_MBSD, tokens)
    return value, jax.tree.map(as_stored, routing)


def _layer(execution: Execution, x_BSD: jax.Array, block: Block) -> tuple[jax.Array, Any]:
    """One layer of a part."""
    tie = execution.remat != "none" and execution.regathers_per_tick
    return (with_dependency(block, x_BSD) if tie else block)(x_BSD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean_loss(
    execution: Execution, whole: Whole, head: Head, x_MBSD: jax.Array, targets_MBS: jax.Array
) -> jax.Array:
    losses = jax.lax.map(lambda one: _loss(execution, whole, head, *one), (x_MBSD, targets_MBS))
    return losses.mean()


def _loss(
    execution: Execution, whole: Whole, head: Head, x_BSD: jax.Array, targets_BS: jax.Array
) -> jax.Array:
    """Of one microbatch."""
    norm, head_VD = head[0], with_float32_grads(head[1], whole)[...]
    x_BSD = execution.place(norm(x_BSD), "batch", sequence_dim(execution), None)
    logits_BSV = logits(execution, x_BSD, head_VD)
    with jax.named_scope("loss"):
        return cross_entropy(logits_BSV, targets_BS)


def _forward(
    execution: Execution, whole: Whole, head: Head, x_MBSD: jax.Array, targets_MBS: jax.Array
) -> tuple:
    microbatches = x_MBSD.shape[0]
    share = lambda *one: _loss(execution, whole, *one) / microbatches
    differentiate = jax.value_and_grad(share, argnums=(0, 1))

    def add(total: Any, one: tuple) -> tuple[Any, jax.Array]:
        value, (to_head, to_x_BSD) = differentiate(head, *one)
        with jax.named_scope("gradients"):
            return jax.tree.map(jnp.add, total, (value, to_head)), to_x_BSD

    value, (like, _) = jax.eval_shape(differentiate, head, x_MBSD[0], targets_MBS[0])
    zeros = jax.tree.map(zeros_like, (value, like))
    (value, to_head), to_x_MBSD = jax.lax.scan(add, zeros, (x_MBSD, targets_MBS))
    return value, (to_head, to_x_MBSD)


def _backward(execution: Execution, gradients: Any, of_loss: jax.Array) -> tuple:
    to_head, to_x_MBSD = jax.tree.map(lambda g: _scaled(g, of_loss), gradients)
    return None, to_head, to_x_MBSD, None


def _scaled(gradient: jax.Array, factor: jax.Array) -> jax.Array:
    """Their product; of a gradient's partial sums each."""
    partial = jax.typeof(gradient).sharding.spec.unreduced
    return gradient * reshard(factor.astype(gradient.dtype), PartitionSpec(reduced=partial))


_mean_loss.defvjp(_forward, _backward)
