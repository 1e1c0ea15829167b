"""Communication of the optimiser itself.

    L layers of one stage, for experts times those of one device; a matrix of D = d_model rows (or
    of a latent) and C columns; C' its columns on one tensor device

    optimiser   over     kind         elements per matrix       why
    muon        tensor   all-to-all   2 x L' D C / (fsdp tensor)    whole matrices for the products,
    muon        fsdp     all-to-all   the same                      and their steps back again
    adafactor   tensor   all-reduce   L D / fsdp                    float32: means of rows
    adafactor   fsdp     all-reduce   L C'                          float32: means of columns

L': the layers are rounded up to a multiple of fsdp x tensor before they are multiplied by experts.
Muon moves the format of its products (`precision.between`) and no table; Adafactor's tables are
matrices as well, of one layer. Routers and matrices that make latents are not cut over tensor, nor
moved over it: their layers are rounded up to a multiple of fsdp alone. The sizes of Adafactor's
steps, a number per matrix, are left out.
"""

from collections.abc import Iterator

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.meshes.shape import AnyMesh, AxisSize
from scaling.models.accounting.matrices import Stack, stacks
from scaling.program.ir import Number
from scaling.run.optimizers import MUON_ITERATIONS


def optimizer_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Transfers of the table above; none for AdamW and Lion."""
    if step.run.optimizer == "muon":
        yield from _muon(step)
    if step.run.optimizer == "adafactor":
        yield from _adafactor(step)


def _muon(step: StepSizes) -> Iterator[Transfer]:
    shape = step.shape
    for stack in stacks(step.config):
        layers, axes = _dealt_out(stack, shape)
        part = layers * _experts(stack, shape) * stack.rows * stack.columns
        for axis in axes:
            over, size = step.axis_names(axis), part * step.itemsize
            yield Transfer(over, "all-to-all", size, 2, f"momentum of {stack.name}")


def muon_flops(step: StepSizes) -> Number:
    """FLOPs on one device of Muon's products: X X^T, A A and B X of each iteration, R <= C."""
    flops: Number = 0.0
    for stack in stacks(step.config) if step.run.optimizer == "muon" else ():
        rows, columns = sorted((stack.rows, stack.columns))
        layers, _ = _dealt_out(stack, step.shape)
        matrices = layers * _experts(stack, step.shape)
        flops = flops + MUON_ITERATIONS * matrices * 2 * rows * rows * (2 * columns + rows)
    return flops


def _dealt_out(stack: Stack, shape: AnyMesh) -> tuple[AxisSize, tuple[str, ...]]:
    """Layers of which a device has complete matrices, and the axes that deal them out."""
    axes = ("tensor", "fsdp") if stack.over_tensor else ("fsdp",)
    return -(-stack.layers // (shape.stage * shape.size(axes))), axes


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
        rows = stack.rows / step.shape.fsdp
        columns = stack.columns / (step.shape.tensor if stack.over_tensor else 1)
        tensor = step.axis_names("tensor") if stack.over_tensor else ""
        fsdp = step.axis_names("fsdp")
        yield Transfer(tensor, "all-reduce", size * rows, 1, f"rows of {stack.name}")
        yield Transfer(fsdp, "all-reduce", size * columns, 1, f"columns of {stack.name}")


def _experts(stack: Stack, shape: AnyMesh) -> Number:
    """Matrices of a layer on one device."""
    return stack.experts / shape.expert if stack.experts else 1
