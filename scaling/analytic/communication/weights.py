"""Matrices and tables that every token is multiplied by: the dense part of `communication.table`.

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

from scaling.analytic.communication.pipeline import recomputed_gathers
from scaling.analytic.communication.transfers import FLOAT32, StepSizes, Transfer
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.matrices import (
    attention_matrices,
    compressing_matrices,
    mlp_matrices,
    n_dense_layers,
)

MATRICES = "matrices of a layer"
TABLES = "token table and head"  # `what` of their lines
LATENT = "matrices of a layer that make latents"


def weight_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Matrices and tables: gathered, their gradients scattered and summed."""
    layers, M = n_dense_layers(step.config), step.microbatches
    matrices, latent, vocabulary, positions = _elements(step)
    copies = 1 if step.config.tied_embeddings else 2
    parallel = step.sequence_parallel
    own_tokens = parallel and not step.vocab_is_sharded
    passes, stored = step.passes(layers), layers / step.shape.stage
    tables, looked_up = (*REPLICAS, "stage"), 1 if step.shape.stage > 1 else M
    if not gathers_once(step):
        again = recomputed_gathers(step, matrices + latent)
        yield Transfer(step.over("fsdp"), "all-gather", *again, MATRICES)
    for what, elements, gathers, scatters, sums, replicas, over_tensor in (
        (MATRICES, matrices, 2 * passes, passes, stored, REPLICAS, 0),
        (LATENT, latent, 2 * passes, passes, stored, REPLICAS, parallel * passes),
        (TABLES, vocabulary, M + looked_up, 2 * M, copies, tables, own_tokens * M * copies),
        ("position table", positions, looked_up, M, 1, tables, parallel * M),
    ):
        size, shard = elements * step.itemsize, elements / step.shape.fsdp
        if gathers_once(step):
            yield from zero_1_transfers(step, what, elements, sums, scatters, bool(over_tensor))
            yield from gradient_shards(step, what, shard, sums, replicas, 0)
            continue
        yield Transfer(step.over("fsdp"), "all-gather", size, gathers, what)
        yield Transfer(step.over("fsdp"), "reduce-scatter", size, scatters, what)
        yield from gradient_shards(step, what, shard, sums, replicas, over_tensor)


def gathers_once(step: StepSizes) -> bool:
    """True if a step all-gathers its weights once (ZeRO stage 1), not for each product."""
    return step.shape.fsdp > 1 and step.run.sharding.zero_stage == 1


def zero_1_transfers(
    step: StepSizes,
    what: str,
    elements: float,
    stored: float,
    uses: float,
    over_tensor: bool,
    itemsize: int | None = None,
) -> Iterator[Transfer]:
    """Transfers of ZeRO stage 1 for `stored` equal weights of `elements`, unsharded over fsdp.

    `uses` gradients of them arise in a step, in a pipeline one in each tick. `itemsize`, bytes of
    an element, is that of the compute format by default.
    """
    fsdp, size = step.over("fsdp"), elements * (itemsize or step.itemsize)
    yield Transfer(fsdp, "all-gather", size, stored, what)
    if over_tensor:
        yield Transfer(step.over("tensor"), "all-reduce", size, uses, what)
    is_sum = step.shape.stage > 1 or step.microbatches > 1
    yield Transfer(fsdp, "reduce-scatter", elements * FLOAT32 if is_sum else size, stored, what)


def gradient_shards(
    step: StepSizes,
    what: str,
    elements: float,
    stored: float,
    replicas: tuple[str, ...],
    over_tensor: float,
    itemsize: int | None = None,
) -> Iterator[Transfer]:
    """Shards of `elements` of the gradients of `stored` equal weights, summed over the replicas.

    They are summed over replicas once per step, over tensor `over_tensor` times.
    """
    size = elements * (itemsize or step.itemsize)
    if step.microbatches == 1 and step.shape.stage == 1:
        axes = step.over(*replicas, "tensor") if over_tensor else step.over(*replicas)
        yield Transfer(axes, "all-reduce", size, stored, what)
        return
    yield Transfer(step.over(*replicas), "all-reduce", elements * FLOAT32, stored, what)
    if over_tensor:
        yield Transfer(step.over("tensor"), "all-reduce", size, over_tensor, what)


def _elements(step: StepSizes) -> tuple[float, float, float, float]:
    """W of the table without the matrices that make latents, these, E and P."""
    config, tensor = step.config, step.shape.tensor
    count = lambda matrices: sum(inputs * outputs for inputs, outputs in matrices.values())
    latent = count(compressing_matrices(config))
    every = count(attention_matrices(config) | mlp_matrices(config, config.d_ff))
    layer = (every - latent) / tensor
    vocabulary = config.vocab_size * config.d_model / (tensor if step.vocab_is_sharded else 1)
    positions = config.max_positions * config.d_model if config.positions == "learned" else 0
    return layer, latent, vocabulary, positions
