"""A run's sequences on the mesh axis `context`: what each device holds, what it exchanges.

Imports no jax.
"""

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from scaling.meshes.errors import InputError
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.meshes.units import format_size
from scaling.models.accounting.context import exchange_shape, exchanged_bytes
from scaling.models.accounting.matrices import layer_reaches
from scaling.models.config import LayerKind, ModelConfig
from scaling.run import Run

Limited = TypeVar("Limited", LayerKind, ModelConfig)


@dataclass(frozen=True)
class SequenceCut:
    """A sequence's chunks on the devices of `context`, and the exchange of one layer."""

    method: str  # ring or all-gather
    devices: int
    chunk: int  # tokens; device i holds the chunks i and 2 x devices - 1 - i
    others: int  # devices whose keys and values one device attends to, in the widest layers
    exchanged_bytes: float  # keys and values of one device that others see, mean of the layers

    def __str__(self) -> str:
        chunks = 2 * self.devices
        plural = "" if self.others == 1 else "s"
        passed = {
            "ring": f"{self.others} permute{plural} of {format_size(self.exchanged_bytes)}",
            "all-gather": f"an all-gather of {format_size(self.devices * self.exchanged_bytes)}",
        }[self.method]
        return (
            f"context={self.devices}: of {chunks} chunks of {self.chunk} tokens device i holds i "
            f"and {chunks - 1}-i; {self.method}: {passed} of keys and values forward in each layer"
        )


def attended_model(run: Run) -> ModelConfig:
    """The model as its attention sees a sequence: chunks of packed documents, which begin with each
    document, are computed as windows of their length that a mask cuts."""
    if run.train.documents != "packed":
        return run.model
    return _with_windows(replace(run.model, layers=tuple(map(_with_windows, run.model.layers))))


def _with_windows(of: Limited) -> Limited:
    limits = filter(None, (of.sliding_window, of.attention_chunk))
    return replace(of, sliding_window=min(limits, default=None), attention_chunk=None)


def sequence_cut(run: Run, mesh: MeshShape) -> SequenceCut | None:
    """The cut of a run's sequences over `context`; None where it is 1."""
    if mesh.context == 1:
        return None
    model, batch = attended_model(run), run.batch
    sequences = batch.global_batch // mesh.batch_shards // batch.microbatches
    size = exchanged_bytes(
        model, sequences, batch.seq_len, mesh.context, mesh.tensor, run.precision.between
    )
    reaches = layer_reaches(model)
    shapes = [exchange_shape(reach, batch.seq_len, mesh.context) for reach in reaches]
    chunk, others = shapes[0][0], max(others for _, _, others in shapes)
    return SequenceCut(run.context.method, mesh.context, chunk, others, size)


def check_chunks(run: Run, mesh: MeshShape, sequence_parallel: bool) -> None:
    """Raise InputError unless each device of `context` gets two equal chunks of the sequence.

    With `sequence_parallel`, `tensor` cuts the sequence between the blocks as well.
    """
    context, seq_len = mesh.context, run.batch.seq_len
    parts = math.lcm(2, mesh.tensor if sequence_parallel else 1)
    if seq_len % (context * parts) == 0:
        return
    over = f" x tensor={mesh.tensor}" if sequence_parallel else ""
    fits = [n for n in divisors(seq_len) if n > 1 and seq_len % (n * parts) == 0]
    other = f", or context of {', '.join(map(str, fits[:12]))}" if fits else ""
    off = "; or switch sharding.sequence_parallel off" if sequence_parallel else ""
    up = -(-seq_len // (context * parts)) * context * parts
    raise InputError(
        f"batch.seq_len={seq_len} is not divisible by {context * parts}: each of context={context}"
        f"{over} devices holds two chunks of it, one early and one late, in equal parts; use "
        f"batch.seq_len of {up}{other}{off}"
    )
