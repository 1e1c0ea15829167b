"""The loss of a step's microbatches behind a pipeline, with the output head on all stages, and its
gradients, by 1F1B (`scaling.models.pipeline.one_forward_one_backward`).
"""

# Dims: M microbatches, P stages, B batch, S sequence, D model

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scaling.models.accounting.matrices import layer_stacks
from scaling.models.config import ModelConfig, layer_configs
from scaling.models.execution import Execution
from scaling.models.head import OutputHead
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
# output head, stream after the last layer, what is given to the head of the microbatch -> what is
# minimised, what is reported
Loss = Callable[[OutputHead, jax.Array, Any], Any]


class PipelineInputs(NamedTuple):
    """The microbatches of a step; arrays of a head are [M, ...], sharded as its tokens."""

    inputs_MBS: jax.Array
    segments_MBS: jax.Array | None
    of_head_M: Any = ()


def pipeline_inputs(
    execution: Execution, inputs_MBS: jax.Array, segments_MBS: jax.Array | None, targets_MBS: Any
) -> PipelineInputs:
    """The microbatches with targets, and whatever else of tokens stands beside them [M, B, S]."""
    shard = partial(shard_targets, execution)
    return PipelineInputs(inputs_MBS, segments_MBS, jax.tree.map(shard, targets_MBS))


def pipeline_sums(model: Transformer, given: PipelineInputs, loss: Loss) -> Any:
    """Sums over microbatches of what `loss` returns; layers are sharded over `stage`."""
    return _pipeline(model, given, loss).sums()


def pipeline_outputs(model: Transformer, given: PipelineInputs, output: Loss) -> Any:
    """Return the results of `output` for all microbatches, stacked [M, ...]."""
    return _pipeline(model, given, output).each()


def pipeline_gradients(
    model: Transformer, given: PipelineInputs, loss: Loss, balance: Balance
) -> tuple[Any, Routing | None, Transformer]:
    """Sums over microbatches of what `loss` reports, of the load of experts if there are any,
    stacked over the layers, and of the gradients of what is minimised.

    That is the loss and `balance` of the routing in all layers. Gradients are partial sums over the
    devices that weights are marked `reduced` over.
    """
    pipeline = _pipeline(model, given, loss, balance)
    (_, reported), routing, gradients = pipeline.sums_and_gradients()
    ((embedding, head_VD, norm), layers) = gradients
    gradients = jax.tree.map(lambda leaf: leaf, model)  # a copy: the argument stays as it is
    gradients.embedding, gradients.head_VD, gradients.final_norm = embedding, head_VD, norm
    for stack, of_stack in zip(layer_stacks(model.config), layers, strict=True):
        setattr(gradients, stack.name, jax.tree.map(unstack_stages, of_stack))
    return reported, jax.tree.map(unstack_stages, routing), gradients


def output_head(model: Transformer) -> OutputHead:
    """The output head that all stages share."""
    return replace(model.head, execution=head_execution(model.execution))


def _pipeline(
    model: Transformer,
    given: PipelineInputs,
    loss: Loss,
    balance: Balance = lambda _: jnp.float32(0),
) -> OneForwardOneBackward:
    execution, config = model.execution, model.config
    kinds, inputs_MBS, segments_MBS = layer_configs(config), given.inputs_MBS, given.segments_MBS
    places = scan_places(config, layer_stacks(config))
    places = places or (0,) * len(kinds)  # of one stack
    rows = lambda stack: places.count(stack) if len(places) > 1 else 0
    documents_MBS = None if segments_MBS is None else jax.lax.map(model.documents, segments_MBS)

    def embed(tables: Any, number: jax.Array) -> jax.Array:
        positions_MBS = None if documents_MBS is None else documents_MBS.positions_BS
        own = jax.tree.map(lambda x_MBS: x_MBS[number], (inputs_MBS, positions_MBS))
        with jax.named_scope("embed"):
            return embed_microbatch(execution, tables[0], *own)

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

    def head(tables: Any, y_PBSD: jax.Array, number: jax.Array) -> tuple[jax.Array, Any]:
        embedding, head_VD, norm = tables
        weight = embedding.table_VD if head_VD is None else head_VD  # tied
        of_model = replace(output_head(model), norm=norm, weight_VD=weight[...])
        with jax.named_scope("head"):
            x_BSD = collect_output(execution, y_PBSD)
        return loss(of_model, x_BSD, jax.tree.map(lambda x_M: x_M[number], given.of_head_M))

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
