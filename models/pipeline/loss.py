"""The loss of a step's microbatches behind a pipeline, with the output head on all stages, and its
gradients, by 1F1B (`scaling.models.pipeline.one_forward_one_backward`).
"""

# Dims: M microbatches, P stages, B batch, S sequence, D model

from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp

from scaling.models.accounting.matrices import layer_stacks
from scaling.models.config import ModelConfig, layer_configs
from scaling.models.head import Targets, gather_tokens, linear_cross_entropy
from scaling.models.moe.routing import Routing
from scaling.models.pattern import scan_patterns, scan_places
from scaling.models.pipeline.layers import (
    collect_output,
    embed_microbatch,
    hand_over,
    head_execution,
    microbatch_of_stages,
    shard_targets,
    stack_stages,
    unstack_stages,
)
from scaling.models.pipeline.one_forward_one_backward import OneForwardOneBackward
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.models.pipeline.shard_map import take_own
from scaling.models.remat import rematerialized
from scaling.models.transformer import Transformer

Balance = Callable[[Routing | None], jax.Array]  # of a pass's layers -> what is minimised as well


def pipeline_loss(
    model: Transformer,
    inputs_MBS: jax.Array,
    targets_MBS: jax.Array,
    weights_MBS: jax.Array | None = None,
    segments_MBS: jax.Array | None = None,
) -> jax.Array:
    """The mean cross-entropy that `linear_cross_entropy` returns, of a model with layers sharded
    over `stage`."""
    pipeline = _pipeline(model, inputs_MBS, targets_MBS, weights_MBS, segments_MBS)
    return pipeline.sums()[1] / len(inputs_MBS)


def pipeline_gradients(
    model: Transformer,
    inputs_MBS: jax.Array,
    targets_MBS: jax.Array,
    weights_MBS: jax.Array | None,
    segments_MBS: jax.Array | None,
    z_loss: float,
    balance: Balance,
) -> tuple[jax.Array, Routing | None, Transformer]:
    """Sums over microbatches of the cross-entropy, of the load of experts if there are any, stacked
    over the layers, and of the gradients of what is minimised.

    That is the loss and `balance` of the routing in all layers. Gradients are partial sums over the
    devices that weights are marked `reduced` over.
    """
    given = inputs_MBS, targets_MBS, weights_MBS, segments_MBS, z_loss, balance
    pipeline = _pipeline(model, *given)
    (_, loss), routing, ((embedding, head_VD, norm), layers) = pipeline.sums_and_gradients()
    gradients = jax.tree.map(lambda leaf: leaf, model)  # a copy: the argument stays as it is
    gradients.embedding, gradients.head_VD, gradients.final_norm = embedding, head_VD, norm
    for stack, of_stack in zip(layer_stacks(model.config), layers, strict=True):
        setattr(gradients, stack.name, jax.tree.map(unstack_stages, of_stack))
    return loss, jax.tree.map(unstack_stages, routing), gradients


def _pipeline(
    model: Transformer,
    inputs_MBS: jax.Array,
    targets_MBS: jax.Array,
    weights_MBS: jax.Array | None,
    segments_MBS: jax.Array | None,
    z_loss: float = 0.0,
    balance: Balance = lambda _: jnp.float32(0),
) -> OneForwardOneBackward:
    chex.assert_equal_shape([inputs_MBS, targets_MBS])
    execution, config = model.execution, model.config
    kinds, places = layer_configs(config), scan_places(config, layer_stacks(config))
    places = places or (0,) * len(kinds)  # of one stack
    rows = lambda stack: places.count(stack) if len(places) > 1 else 0
    given_MBS = jax.tree.map(lambda x: shard_targets(execution, x), (targets_MBS, weights_MBS))

    documents_MBS = None if segments_MBS is None else jax.lax.map(model.documents, segments_MBS)

    def embed(tables: Any, number: jax.Array) -> jax.Array:
        positions_MBS = None if documents_MBS is None else documents_MBS.positions_BS
        given = jax.tree.map(lambda x_MBS: x_MBS[number], (inputs_MBS, positions_MBS))
        with jax.named_scope("embed"):
            return embed_microbatch(execution, tables[0], *given)

    def run(layers: Any, x_PBSD: jax.Array, number_P: jax.Array) -> tuple[jax.Array, Any]:
        own = lambda x_MBS: microbatch_of_stages(execution, x_MBS, number_P)
        documents_PBS = jax.tree.map(own, documents_MBS)

        def layer(kind: ModelConfig) -> Callable:
            def one(x_PBSD: jax.Array, block_P: Any) -> tuple[jax.Array, Any]:
                block = take_own(block_P)
                stage = lambda x_BSD, documents: block(x_BSD)(x_BSD, documents, kind)
                return jax.vmap(stage)(x_PBSD, documents_PBS)

            return rematerialized(one, execution)

        with jax.named_scope("layers"):
            x_PBSD, (*_, routing) = scan_patterns(layer, kinds, x_PBSD, *layers, places=places)
            return x_PBSD, routing

    def head(tables: Any, y_PBSD: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        embedding, head_VD, norm = tables
        weight = embedding.table_VD if head_VD is None else head_VD  # tied
        rules = head_execution(execution)
        with jax.named_scope("head"):
            x_BSD = gather_tokens(rules, norm(collect_output(execution, y_PBSD)))
        given: Targets = jax.tree.map(lambda x_MBS: x_MBS[number], given_MBS)
        return linear_cross_entropy(rules, x_BSD, weight[...], *given, z_loss, config.logit_softcap)

    def hop(x_PBSD: jax.Array, shift: int, ring: bool) -> jax.Array:
        with jax.named_scope("hand_on"):
            return hand_over(execution, x_PBSD, shift, ring)

    stages, parts = execution.rules.mesh.stage, execution.virtual_stages
    return OneForwardOneBackward(
        schedule=PipelineSchedule(stages, parts, len(inputs_MBS)),
        tables=(model.embedding, model.head_VD, model.final_norm),
        layers=tuple(
            jax.tree.map(partial(stack_stages, rows=rows(i)), stack)
            for i, stack in enumerate(model.stacks)
        ),
        embed=embed,
        run=run,
        head=head,
        hop=hop,
        balance=lambda aux: balance(aux) / parts,  # a mean over the layers of a pass
    )
