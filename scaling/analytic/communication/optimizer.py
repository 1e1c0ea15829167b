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

from scaling.analytic.communication.transfers import FLOAT32, StepSizes, Transfer
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.layer_stacks import Stack, stacks
from scaling.models.accounting.matrices import BYTES
from scaling.models.config import ModelConfig
from scaling.parallelism.rules import rules_for
from scaling.run import Run


def optimizer_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Transfers of the optimiser."""
    return transfers_of(step.run, step.shape, step.config)


def transfers_of(run: Run, shape: MeshShape, config: ModelConfig) -> Iterator[Transfer]:
    """Transfers of the table above.

    Args:
        run: names the optimiser and the formats.
        shape: its mesh.
        config: the run's model, with the length of its positions.
    """
    if run.optimizer == "muon":
        yield from _muon(run, shape, config)
    if run.optimizer == "adafactor":
        yield from _adafactor(run, shape, config)


def _muon(run: Run, shape: MeshShape, config: ModelConfig) -> Iterator[Transfer]:
    for stack in stacks(config):
        axes = ("tensor", "fsdp") if stack.over_tensor else ("fsdp",)
        devices = shape.size(axes)
        layers = -(-stack.layers // (shape.stage * devices)) * devices
        part = layers * _experts(stack, shape) * stack.rows * stack.columns / devices
        for axis in axes:
            size = part * BYTES[run.precision.between]
            yield Transfer(_over(axis, shape), "all-to-all", size, 2, f"momentum of {stack.name}")


def _adafactor(run: Run, shape: MeshShape, config: ModelConfig) -> Iterator[Transfer]:
    vocab = bool(rules_for(run, shape).axes("vocab"))
    table = lambda name, rows, cut: Stack(name, 1, None, config.d_model, rows, cut)
    tables = [table("token table", config.vocab_size, vocab)]
    if not config.tied_embeddings:
        tables.append(table("output head", config.vocab_size, vocab))
    if config.positions == "learned":
        tables.append(table("position table", config.max_positions, False))
    for stack in stacks(config):
        yield from _means(stack, stack.layers / shape.stage, shape)
    for stack in tables:
        yield from _means(stack, 1, shape)


def _means(stack: Stack, layers: float, shape: MeshShape) -> Iterator[Transfer]:
    """Sums over what the axes cut, of the rows and of the columns of some layers' matrices."""
    matrices = layers * _experts(stack, shape)
    rows, columns = (
        stack.rows / shape.fsdp,
        stack.columns / (shape.tensor if stack.over_tensor else 1),
    )
    over = _over("tensor", shape) if stack.over_tensor else ""
    yield Transfer(over, "all-reduce", matrices * rows * FLOAT32, 1, f"rows of {stack.name}")
    over = _over("fsdp", shape)
    yield Transfer(over, "all-reduce", matrices * columns * FLOAT32, 1, f"columns of {stack.name}")


def _experts(stack: Stack, shape: MeshShape) -> float:
    """Matrices of a layer on one device."""
    return stack.experts / shape.expert if stack.experts else 1


def _over(axis: str, shape: MeshShape) -> str:
    return axis if getattr(shape, axis) > 1 else ""
