"""Cases of operations without matrix products, on tensors of every size.

They differ in operations per element and in the number of arrays; sizes decide whether those lie in
a cache.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from scaling.calibration.timing import FLOAT, Case
from scaling.profiles.samples import MemorySample


@dataclass(frozen=True)
class Counted:
    """Counts of an operation per element of the arrays that it reads."""

    read: int = 1  # arrays
    written: int = 1
    rows: int = 0  # numbers written per row
    columns: int = 0  # and per column
    flops: int = 0
    transcendentals: int = 0


def memory_cases(mesh: Mesh, sizes: Sequence[int]) -> Iterator[Case]:
    """Yields every operation on tensors of every size."""
    for elements in sizes:
        rows = 2 ** ((elements.bit_length() - 1) // 2)
        shape = (rows, elements // rows)
        for kind, operation, counted in OPERATIONS:
            arrays = counted.read + counted.written
            edges = counted.rows * shape[0] + counted.columns * shape[1]
            moved = FLOAT * (arrays * elements + edges)
            flops, special = counted.flops * elements, counted.transcendentals * elements
            sample = MemorySample(kind, moved, (), float(flops), float(special))
            yield Case(sample, mesh, operation, (shape,) * counted.read)


def _chain(length: int) -> Callable[[jax.Array], jax.Array]:
    """`length` times x (1 - x) + 1/4: three operations that stay three, and within 0 and 1."""

    def apply(x: jax.Array) -> jax.Array:
        for _ in range(length):
            x = x * (1.0 - x) + 0.25
        return x

    return apply


OPERATIONS: tuple[tuple[str, Callable[..., Any], Counted], ...] = (
    ("copy", jnp.copy, Counted()),
    # Flattened, so that the compiler cannot skip the copy.
    ("transpose", lambda x: x.T.reshape(-1), Counted()),
    ("reduce", lambda x: x.sum(axis=1), Counted(written=0, rows=1, flops=1)),
    ("reduce", lambda x: (x * x).sum(axis=1), Counted(written=0, rows=1, flops=2)),
    ("reduce", lambda x: x.sum(axis=0), Counted(written=0, columns=1, flops=1)),
    ("elementwise", jnp.add, Counted(read=2, flops=1)),
    ("elementwise", _chain(1), Counted(flops=3)),
    ("elementwise", _chain(8), Counted(flops=3 * 8)),
    # An optimizer update: several arrays, a root and a division.
    (
        "elementwise",
        lambda x, mean, square: x - 0.001 * mean / (jnp.sqrt(square) + 1e-8),
        Counted(read=3, flops=4, transcendentals=1),
    ),
    ("transcendental", jnp.exp, Counted(transcendentals=1)),
    ("transcendental", jnp.tanh, Counted(transcendentals=1)),
    # The gate of a gated MLP.
    (
        "transcendental",
        lambda x, y: jax.nn.silu(x) * y,
        Counted(read=2, flops=5, transcendentals=1),
    ),
)
