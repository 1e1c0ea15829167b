"""Cases: matrix products, attention, operations without products, collectives; on all devices.

Attention is the model's own call, forward, and forward with backward: the backward pass alone is
the difference of the two, repeat by repeat. Operations without products differ in operations per
element and in the number of arrays; sizes decide whether those lie in a cache. Collectives are of
each kind over each size and stride of an axis, all its groups at once:

8 devices, ranks 2, stride 2      0 . 2 .    groups {0,2} {1,3} {4,6} {5,7}
                                  4 . 6 .    mesh data=2, fsdp=2, tensor=2, over fsdp
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from scaling.calibration.sizes import Sizes
from scaling.calibration.timing import FLOAT, TimedCase
from scaling.meshes.devices import present_mesh
from scaling.meshes.rules import divisors, make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.attention import ScoreRules, attend
from scaling.models.execution import Execution
from scaling.profiles.samples import (
    AttentionSample,
    CollectiveSample,
    MatmulSample,
    MemorySample,
    Sample,
)
from scaling.program.ir import CollectiveKind

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
AXIS = "fsdp"  # groups of collectives run along it; `data` and `tensor` lie outside and inside


def matmul_cases(mesh: Mesh, sizes: Sizes) -> Iterator[TimedCase]:
    """Yields every shape in every dtype, and square ones in the other dtypes.

    Products are as in the models: true fp32 for "fp32", else as the device likes.
    """
    for dtype in (*sizes.dtypes, *sizes.other_dtypes):
        highest = dtype == "fp32"
        precision = jax.lax.Precision.HIGHEST if highest else jax.lax.Precision.DEFAULT
        product = partial(jnp.matmul, precision=precision)
        for batch, m, n, k in sizes.shapes:
            if dtype in sizes.dtypes or (batch == 1 and m == n == k):
                sample = MatmulSample(dtype, batch, m, n, k, ())
                shapes = ((batch, m, k), (batch, k, n)) if batch > 1 else ((m, k), (k, n))
                yield TimedCase(sample, mesh, product, shapes, DTYPES[dtype])


def attention_cases(mesh: Mesh, sizes: Sizes, flash: bool) -> Iterator[TimedCase]:
    """Yields forward, and forward with backward, of every size; `flash`: by cuDNN's kernel."""
    dtype: Literal["bf16", "fp32"] = "bf16" if flash else "fp32"
    rules = make_rules(MeshShape(data=mesh.size), False)
    kernel: Literal["cudnn", "xla"] = "cudnn" if flash else "xla"
    execution = Execution(rules, compute=dtype, attention_kernel=kernel)

    def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return attend(q, k, v, execution, ScoreRules())

    def both(q: jax.Array, k: jax.Array, v: jax.Array, slope: jax.Array) -> tuple[jax.Array, ...]:
        out, back = jax.vjp(forward, q, k, v)
        return out, *back(slope)

    for batch, heads, tokens, head in sizes.attention:
        sample = AttentionSample(dtype, batch, heads, tokens, tokens, head, "forward", ())
        shape = (batch, tokens, heads, head)
        yield TimedCase(sample, mesh, forward, (shape,) * 3, DTYPES[dtype], shared=True)
        sample = replace(sample, direction="backward")
        yield TimedCase(sample, mesh, both, (shape,) * 4, DTYPES[dtype], shared=True)


def backward_alone(samples: Sequence[Sample]) -> list[AttentionSample]:
    """The samples of attention; backward seconds without those of the forward pass."""
    attention = [sample for sample in samples if isinstance(sample, AttentionSample)]
    alone = []
    for forward, both in zip(attention[::2], attention[1::2], strict=True):
        assert both == replace(forward, direction="backward", seconds=both.seconds)
        pairs = zip(forward.seconds, both.seconds, strict=True)
        rest = tuple(b - f for f, b in pairs if b > f)
        alone += [forward, replace(both, seconds=rest)] if rest else [forward]
    return alone


@dataclass(frozen=True)
class ElementCounts:
    """Counts of an operation per element of the arrays that it reads."""

    read: int = 1  # arrays
    written: int = 1
    rows: int = 0  # numbers written per row
    columns: int = 0  # and per column
    flops: int = 0
    transcendentals: int = 0


def memory_cases(mesh: Mesh, sizes: Sequence[int]) -> Iterator[TimedCase]:
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
            yield TimedCase(sample, mesh, operation, (shape,) * counted.read)


def _chain(length: int) -> Callable[[jax.Array], jax.Array]:
    """`length` times x (1 - x) + 1/4: three operations that stay three, and within 0 and 1."""

    def apply(x: jax.Array) -> jax.Array:
        for _ in range(length):
            x = x * (1.0 - x) + 0.25
        return x

    return apply


OPERATIONS: tuple[tuple[str, Callable[..., Any], ElementCounts], ...] = (
    ("copy", jnp.copy, ElementCounts()),
    # Flattened, so that the compiler cannot skip the copy.
    ("transpose", lambda x: x.T.reshape(-1), ElementCounts()),
    ("reduce", lambda x: x.sum(axis=1), ElementCounts(written=0, rows=1, flops=1)),
    ("reduce", lambda x: (x * x).sum(axis=1), ElementCounts(written=0, rows=1, flops=2)),
    ("reduce", lambda x: x.sum(axis=0), ElementCounts(written=0, columns=1, flops=1)),
    ("elementwise", jnp.add, ElementCounts(read=2, flops=1)),
    ("elementwise", _chain(1), ElementCounts(flops=3)),
    ("elementwise", _chain(8), ElementCounts(flops=3 * 8)),
    # An optimizer update: several arrays, a root and a division.
    (
        "elementwise",
        lambda x, mean, square: x - 0.001 * mean / (jnp.sqrt(square) + 1e-8),
        ElementCounts(read=3, flops=4, transcendentals=1),
    ),
    ("transcendental", jnp.exp, ElementCounts(transcendentals=1)),
    ("transcendental", jnp.tanh, ElementCounts(transcendentals=1)),
    # The gate of a gated MLP.
    (
        "transcendental",
        lambda x, y: jax.nn.silu(x) * y,
        ElementCounts(2, flops=5, transcendentals=1),
    ),
)


def collective_cases(devices: int, quick: bool, messages: Sequence[int]) -> Iterator[TimedCase]:
    """Yields every kind, axis and size; if quick, the axis with the largest stride only.

    `messages` are the sizes in bytes.
    """
    for ranks, stride in axes(devices, quick):
        shape = MeshShape(data=devices // (ranks * stride), fsdp=ranks, tensor=stride)
        yield from axis_cases(present_mesh(shape), messages)


def axis_cases(mesh: Mesh, messages: Sequence[int]) -> Iterator[TimedCase]:
    """Yields every kind over one axis, at each size of a number or more for each rank."""
    ranks = mesh.shape[AXIS]
    sizes = dict.fromkeys(size // FLOAT // ranks * ranks for size in messages)  # elements
    for kind, operation in collective_operations(ranks).items():
        for total in filter(None, sizes):
            local = total // ranks if kind == "all-gather" else total
            sample = CollectiveSample(kind, ranks, mesh.size // ranks, FLOAT * total, ())
            in_place = kind == "all-reduce"
            yield TimedCase(sample, mesh, operation, ((local,),), in_place=in_place)


def axes(devices: int, quick: bool) -> list[tuple[int, int]]:
    """(ranks, stride) of every axis that a mesh of these devices can have."""
    pairs = []
    for ranks in divisors(devices)[1:]:
        strides = divisors(devices // ranks)
        pairs += [(ranks, stride) for stride in (strides[-1:] if quick else strides)]
    return pairs


def collective_operations(ranks: int) -> dict[CollectiveKind, Callable[[jax.Array], jax.Array]]:
    """Each kind of collective as a function of a vector inside `shard_map`."""
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    return {
        "all-reduce": lambda x: jax.lax.psum(x, AXIS),
        "all-gather": lambda x: jax.lax.all_gather(x, AXIS, tiled=True),
        "reduce-scatter": lambda x: jax.lax.psum_scatter(x, AXIS, tiled=True),
        "all-to-all": lambda x: jax.lax.all_to_all(x, AXIS, 0, 0, tiled=True),
        "permute": lambda x: jax.lax.ppermute(x, AXIS, ring),
    }
