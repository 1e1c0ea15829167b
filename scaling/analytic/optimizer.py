"""Communication of the optimiser itself.

    L layers of one stage, for experts times those of one device; a matrix of D = d_model rows (or
    of a latent) and C columns; C' its columns on one tensor device

    optimiser   over     kind         elements per matrix       why
    muon        tensor   all-to-all   2 x L' D C / (shards tensor)  whole matrices for the products,
    muon        shards   all-to-all   the same                      and their steps back again
    adafactor   tensor   all-reduce   L D / shards                  float32: means of rows
    adafactor   shards   all-reduce   L C'                          float32: means of columns

shards: the axes that shard D, as those of `scaling.analytic.weights`. L': the layers are rounded up
to a multiple of shards x tensor before they are multiplied by experts.
Muon moves the format of its products (`precision.between`) and no table; Adafactor's tables are
matrices as well, of one layer. Routers and matrices that make latents are not cut over tensor, nor
moved over it: their layers are rounded up to a multiple of the shards alone. The sizes of
Adafactor's steps, a number per matrix, are left out.
"""

import math
from collections.abc import Iterator

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.analytic.weights import shard_axes
from scaling.meshes.shape import AnyMesh, AxisSize
from scaling.models.accounting.matrices import OF_LATENTS, Stack, stacks
from scaling.program.ir import Number
from scaling.run.optimizers import MUON_ITERATIONS


def optimizer_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Transfers of the table above; none for AdamW and Lion."""
    if step.run.optimizer == "muon":
        yield from _muon(step)
    if step.run.optimizer == "adafactor":
        yield from _adafactor(step)


def _muon(step: StepSizes) -> Iterator[Transfer]:
    for stack in stacks(step.config):
        layers, every = _dealt_out(step, stack)
        part = layers * _experts(stack, step.shape) * stack.rows * stack.columns
        for axes in every:
            over, size = step.axis_names(*axes), part * step.itemsize
            yield Transfer(over, "all-to-all", size, 2, f"momentum of {stack.name}")


def muon_flops(step: StepSizes) -> Number:
    """FLOPs on one device of Muon's products: X X^T, A A and B X of each iteration, R <= C."""
    flops: Number = 0.0
    for stack in stacks(step.config) if step.run.optimizer == "muon" else ():
        rows, columns = sorted((stack.rows, stack.columns))
        layers, _ = _dealt_out(step, stack)
        matrices = layers * _experts(stack, step.shape)
        flops = flops + MUON_ITERATIONS * matrices * 2 * rows * rows * (2 * columns + rows)
    return flops


def _dealt_out(step: StepSizes, stack: Stack) -> tuple[AxisSize, tuple[tuple[str, ...], ...]]:
    """Layers of which a device has complete matrices, and the axes that deal them out in turn."""
    shape, own = step.shape, shard_axes(step, bool(stack.experts), stack.name in OF_LATENTS)
    every = (("tensor",), own) if stack.over_tensor else (own,)
    parts = shape.stage * math.prod(map(shape.size, every))
    return -(-stack.layers // parts), every


def _adafactor(step: StepSizes) -> Iterator[Transfer]:
    """Sums over what the axes cut, of rows and of columns of matrices and tables."""
    config, vocab = step.config, step.vocab_is_sharded
    table = lambda name, rows, cut: Stack(name, 1, config.d_model, rows, over_tensor=cut)
    tables = [table("token table", config.vocab_size, vocab)]
    if not config.tied_embeddings:
        tables.append(table("output head", config.vocab_size, vocab))
    if config.positions == "learned":
        tables.append(table("position table", config.max_positions, False))
    of_layers = [(stack, stack.layers / step.shape.stage) for stack in stacks(config)]
    for stack, layers in [*of_layers, *((table, 1) for table in tables)]:
        size = layers * _experts(stack, step.shape) * FLOAT32
        axes = shard_axes(step, bool(stack.experts), stack.name in OF_LATENTS)
        rows = stack.rows / step.shape.size(axes)
        columns = stack.columns / (step.shape.tensor if stack.over_tensor else 1)
        tensor = step.axis_names("tensor") if stack.over_tensor else ""
        yield Transfer(tensor, "all-reduce", size * rows, 1, f"rows of {stack.name}")
        over, what = step.axis_names(*axes), f"columns of {stack.name}"
        yield Transfer(over, "all-reduce", size * columns, 1, what)


def _experts(stack: Stack, shape: AnyMesh) -> Number:
    """Matrices of a layer on one device."""
    return stack.experts / shape.expert if stack.experts else 1
