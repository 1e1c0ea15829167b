"""Matrices and tables that everyone multiplies by: the dense part of
`analytic.communication.table`."""

from collections.abc import Iterator

from scaling.analytic.communication.pipeline import matrices_again
from scaling.analytic.communication.transfers import FLOAT32, StepSizes, Transfer
from scaling.analytic.communication.zero import gathers_once, zero_1_lines
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
    own_tokens = parallel and not step.cut_vocabulary
    passes, stored = step.passes(layers), layers / step.shape.stage
    tables, looked_up = (*REPLICAS, "stage"), 1 if step.shape.stage > 1 else M
    if not gathers_once(step):
        again = matrices_again(step, matrices + latent)
        yield Transfer(step.over("fsdp"), "all-gather", *again, MATRICES)
    for what, elements, gathers, scatters, sums, replicas, over_tensor in (
        (MATRICES, matrices, 2 * passes, passes, stored, REPLICAS, 0),
        (LATENT, latent, 2 * passes, passes, stored, REPLICAS, parallel * passes),
        (TABLES, vocabulary, M + looked_up, 2 * M, copies, tables, own_tokens * M * copies),
        ("position table", positions, looked_up, M, 1, tables, parallel * M),
    ):
        size, shard = elements * step.itemsize, elements / step.shape.fsdp
        if gathers_once(step):
            yield from zero_1_lines(step, what, elements, sums, scatters, bool(over_tensor))
            yield from shards(step, what, shard, sums, replicas, 0)
            continue
        yield Transfer(step.over("fsdp"), "all-gather", size, gathers, what)
        yield Transfer(step.over("fsdp"), "reduce-scatter", size, scatters, what)
        yield from shards(step, what, shard, sums, replicas, over_tensor)


def shards(
    step: StepSizes,
    what: str,
    elements: float,
    stored: float,
    replicas: tuple[str, ...],
    over_tensor: float,
    itemsize: int | None = None,
) -> Iterator[Transfer]:
    """Shards of the gradients of `stored` equal weights, summed over replicas once per step.

    Args:
        elements: of one shard.
        over_tensor: times per step that they are summed over tensor as well; 0: they are not.
        itemsize: bytes of an element; None: those of the compute format.
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
    vocabulary = config.vocab_size * config.d_model / (tensor if step.cut_vocabulary else 1)
    positions = config.max_positions * config.d_model if config.positions == "learned" else 0
    return layer, latent, vocabulary, positions
