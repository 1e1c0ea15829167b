"""What the optimiser itself has to move between devices.

    L layers; a matrix of D = d_model rows and C columns; C' its columns on one tensor device

    optimiser   over     kind         elements per matrix       why
    muon        tensor   all-to-all   2 x L' D C / (fsdp tensor)    whole matrices for the products,
    muon        fsdp     all-to-all   the same                      and their steps back again
    adafactor   tensor   all-reduce   L D / fsdp                    float32: means of rows
    adafactor   fsdp     all-reduce   L C'                          float32: means of columns

L' is L rounded up to a multiple of fsdp x tensor. Muon moves the format of its products
(`precision.compute`) and no table; Adafactor's tables are matrices as well, of one layer.
The sizes of Adafactor's steps, a number per matrix, are left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from meshes.shape import MeshShape
from models.accounting.activations import BYTES
from models.accounting.matrices import attention_matrices, mlp_matrices
from models.config import ModelConfig
from scaling.layouts import rules_for
from scaling.program import CollectiveKind
from scaling.run import Run

FLOAT32 = BYTES["fp32"]


class Call(NamedTuple):
    """Equal calls, as `scaling.expected.Line` has them."""

    axes: str  # "" for an axis of one device
    kind: CollectiveKind
    bytes: float
    calls: float
    what: str


def optimizer_calls(run: Run, shape: MeshShape, config: ModelConfig) -> Iterator[Call]:
    """The table above, line by line.

    Args:
        run: names the optimiser and the formats.
        shape: its mesh.
        config: the run's model, with the length of its positions.
    """
    if run.optimizer == "muon":
        yield from _muon(run, shape, config)
    if run.optimizer == "adafactor":
        yield from _adafactor(run, shape, config)


def _muon(run: Run, shape: MeshShape, config: ModelConfig) -> Iterator[Call]:
    devices = shape.fsdp * shape.tensor
    layers = -(-config.n_layers // devices) * devices
    for name, columns in _columns(config).items():
        part = layers * config.d_model * columns / devices * BYTES[run.precision.between]
        for axis in ("tensor", "fsdp"):
            yield Call(_over(axis, shape), "all-to-all", part, 2, f"momentum of {name}")


def _adafactor(run: Run, shape: MeshShape, config: ModelConfig) -> Iterator[Call]:
    vocab = bool(rules_for(run, shape).axes("vocab"))
    matrices = {n: (config.n_layers, columns, True) for n, columns in _columns(config).items()}
    matrices["token table"] = 1, config.vocab_size, vocab
    if not config.tied_embeddings:
        matrices["output head"] = 1, config.vocab_size, vocab
    if config.positions == "learned":
        matrices["position table"] = 1, config.max_positions, False
    for name, (layers, columns, cut) in matrices.items():
        rows = layers * config.d_model / shape.fsdp * FLOAT32
        over = _over("tensor", shape) if cut else ""
        yield Call(over, "all-reduce", rows, 1, f"rows of {name}")
        sums = layers * columns / (shape.tensor if cut else 1) * FLOAT32
        yield Call(_over("fsdp", shape), "all-reduce", sums, 1, f"columns of {name}")


def _columns(config: ModelConfig) -> dict[str, int]:
    """Of each matrix of a layer: its length across d_model."""
    matrices = attention_matrices(config) | mlp_matrices(config, config.d_ff)
    return {name: a * b // config.d_model for name, (a, b) in matrices.items()}


def _over(axis: str, shape: MeshShape) -> str:
    return axis if getattr(shape, axis) > 1 else ""
