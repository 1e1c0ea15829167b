"""Raw measurements of a machine: what was run, and how many seconds each repeat took."""

from dataclasses import dataclass
from typing import Literal

from scaling.program.ir import CollectiveKind

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class MatmulSample:
    """[batch, m, k] x [batch, k, n] on every device at once."""

    dtype: str
    batch: int
    m: int
    n: int
    k: int
    seconds: tuple[float, ...]  # of one call, one for every repeat


@dataclass(frozen=True)
class MemorySample:
    """An operation without matrix products."""

    kind: str  # "copy", "elementwise", "reduce", "transpose", "transcendental"
    bytes: float  # read and written
    seconds: tuple[float, ...]
    vector_flops: float = 0.0
    transcendentals: float = 0.0


@dataclass(frozen=True)
class AttentionSample:
    """Attention as the models call it; FLOPs count the full square of scores."""

    dtype: str
    batch: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    direction: Direction
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class CollectiveSample:
    """One collective in `groups` groups of `ranks` devices at once; bytes as in nccl-tests."""

    kind: CollectiveKind
    ranks: int
    groups: int
    bytes: float
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class DispatchSample:
    """One call of a compiled program that does next to nothing but touch memory."""

    buffers: int  # arguments and results on each device
    touched: float  # bytes read and written
    fresh: float  # bytes of temporary memory that the system has to hand out for this call
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class StepSample:
    """A whole training step of a small model."""

    run: str
    kernels: float  # s, of its kernels by the fits to kernels alone
    rest: float  # s, of communication and of calling the program
    seconds: tuple[float, ...]


Sample = (
    MatmulSample | MemorySample | AttentionSample | CollectiveSample | DispatchSample | StepSample
)


@dataclass(frozen=True)
class Samples:
    """Every raw measurement."""

    matmul: tuple[MatmulSample, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    attention: tuple[AttentionSample, ...] = ()
    collective: tuple[CollectiveSample, ...] = ()
    dispatch: tuple[DispatchSample, ...] = ()
    step: tuple[StepSample, ...] = ()
