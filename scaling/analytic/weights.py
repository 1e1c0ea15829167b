"""Communication of matrices and tables: the weights of `scaling.analytic.table`, and those of
`scaling.analytic.experts`.

ZeRO stage 1 gathers and scatters them over fsdp once per step, not for each product:

    W L + E + P: matrices of all layers, tables (a tied one once), position table

    kind             elements       why
    all-gather       W L + E + P    once per step, in compute format
    reduce-scatter   W L + E + P    after the last microbatch; float32 if it is a sum

In a pipeline a device has the layers of its stage, L / S, and gradients are sums over ticks, so
float32 always. Gradients of weights that meet each tensor device's own tokens (a table, positions,
routers, matrices of latents) are all-reduced over tensor before they are scattered: unsharded, in
each microbatch, for each use. Routers are float32. The shards of gradients are summed over the
other replicas as in stage 3.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.matrices import Stack, block_stacks, n_dense_layers, n_moe_layers

OF_EXPERTS = tuple(axis for axis in REPLICAS if axis != "expert")  # replicas of a routed expert
MATRICES = "matrices of a layer"
TABLES = "token table and head"  # `what` of their lines
LATENTS = "matrices of a layer that make latents"
EXPERTS = "routed experts of a layer"
ROUTER = "router of a layer"


@dataclass(frozen=True)
class Weights:
    """Equal weights of which each is gathered in one call: a layer's matrices, a table."""

    what: str
    elements: float  # of one, unsharded over fsdp
    itemsize: int
    stored: float  # how many a device has
    gathers: float  # per step, for products
    scatters: float  # per step, of the gradients of products
    over_tensor: float = 0  # sums of gradients over tensor in a step; 0: it cuts them
    replicas: tuple[str, ...] = REPLICAS


def weight_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Matrices and tables: gathered, their gradients scattered and summed."""
    once = step.shape.fsdp > 1 and step.run.sharding.zero_stage == 1
    is_sum = step.shape.stage > 1 or step.microbatches > 1
    fsdp, tensor = step.over("fsdp"), step.over("tensor")
    if not once:
        yield _gathered_again(step)
    for w in (*_of_layers(step), *_of_tables(step)):
        size, what = w.elements * w.itemsize, w.what
        summed = w.elements * FLOAT32 if is_sum else size
        if once:
            yield Transfer(fsdp, "all-gather", size, w.stored, what)
            yield Transfer(tensor, "all-reduce", size, w.over_tensor and w.scatters, what)
            yield Transfer(fsdp, "reduce-scatter", summed, w.stored, what)
        else:
            yield Transfer(fsdp, "all-gather", size, w.gathers, what)
            yield Transfer(fsdp, "reduce-scatter", size, w.scatters, what)
        shards_over_tensor = 0 if once else w.over_tensor
        together = ("tensor",) if shards_over_tensor and not is_sum else ()
        axes, shard = step.over(*w.replicas, *together), 1 / step.shape.fsdp
        yield Transfer(axes, "all-reduce", summed * shard, w.stored, what)
        if is_sum:
            yield Transfer(tensor, "all-reduce", size * shard, shards_over_tensor, what)


def _of_layers(step: StepSizes) -> Iterator[Weights]:
    """Matrices of layers, with the dense MLP and with experts."""
    config, shape = step.config, step.shape
    for moe, layers in ((False, n_dense_layers(config)), (True, n_moe_layers(config))):
        if not layers:
            continue
        passes, elements = step.passes(layers), dict[str, float]()
        for stack in block_stacks(config, moe):
            parts = shape.tensor if stack.over_tensor else 1
            parts *= shape.expert if stack.experts else 1
            what = _what(stack)
            elements[what] = elements.get(what, 0) + stack.matrices * stack.size / parts
        gathers = (2 + step.recompute) * passes if moe else 2 * passes
        for what, number in elements.items():
            yield Weights(
                what,
                number,
                FLOAT32 if what == ROUTER else step.itemsize,
                layers / shape.stage,
                gathers,
                passes,
                passes if what in (LATENTS, ROUTER) and step.sequence_parallel else 0,
                OF_EXPERTS if what == EXPERTS else REPLICAS,
            )


def _what(stack: Stack) -> str:
    if stack.over_tensor:
        return EXPERTS if stack.experts else MATRICES
    return ROUTER if stack.name == "router" else LATENTS


def _gathered_again(step: StepSizes) -> Transfer:
    """Dense layers in ticks that run again; of a part of one layer not the last product."""
    elements = sum(
        stack.size / (step.shape.tensor if stack.over_tensor else 1)
        for stack in block_stacks(step.config, moe=False)
        if not (step.one_layer and stack.name == "down")
    )
    calls = step.recompute * step.passes(n_dense_layers(step.config))
    return Transfer(step.over("fsdp"), "all-gather", elements * step.itemsize, calls, MATRICES)


def _of_tables(step: StepSizes) -> Iterator[Weights]:
    """Token table and head, and the position table."""
    config, shape, M = step.config, step.shape, step.microbatches
    copies = 1 if config.tied_embeddings else 2
    vocabulary = config.vocab_size * config.d_model
    vocabulary_parts = shape.tensor if step.vocab_is_sharded else 1
    positions = config.max_positions * config.d_model if config.positions == "learned" else 0
    own_tokens = step.sequence_parallel and not step.vocab_is_sharded
    replicas, looked_up = (*REPLICAS, "stage"), 1 if shape.stage > 1 else M
    size = step.itemsize
    yield Weights(
        *(TABLES, vocabulary / vocabulary_parts, size, copies, M + looked_up, 2 * M),
        *(M * copies if own_tokens else 0, replicas),
    )
    yield Weights(
        *("position table", positions, size, 1, looked_up, M),
        *(M if step.sequence_parallel else 0, replicas),
    )
