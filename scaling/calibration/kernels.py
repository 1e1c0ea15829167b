"""Cases of matrix products: shapes of every kind, each on all devices at once.

Cubes show how the rate grows with size; slabs, which of the three dimensions matters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from scaling.calibration.timing import Case
from scaling.profiles.samples import MatmulSample

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}
Shape = tuple[int, int, int, int]  # batch, m, n, k


@dataclass(frozen=True)
class Sizes:
    """Shapes and sizes that are measured."""

    dtypes: tuple[str, ...]
    shapes: tuple[Shape, ...]
    elements: tuple[int, ...]  # of the tensors of memory operations
    other_dtypes: tuple[str, ...] = ()  # for cubes only


def cubes(*sizes: int) -> tuple[Shape, ...]:
    """Products of square matrices."""
    return tuple((1, n, n, n) for n in sizes)


def slabs(small: int, large: int) -> tuple[Shape, ...]:
    """Products with one dimension small, and with one large."""
    return tuple(
        (1, *(a if i == j else b for j in range(3)))  # type: ignore[misc]
        for a, b in ((small, large), (large, small))
        for i in range(3)
    )


# A fake host device has the sizes of toys; scores of attention are batches of small products.
HOST_QUICK = Sizes(
    dtypes=("fp32",),
    shapes=cubes(16, 32, 64, 128, 256, 512) + slabs(32, 256) + ((8, 64, 64, 16), (8, 64, 16, 64)),
    elements=(2**10, 2**13, 2**16, 2**18, 2**20),
)
HOST_FULL = Sizes(
    dtypes=("fp32",),
    shapes=(
        *cubes(8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
        *slabs(16, 128), *slabs(32, 256), *slabs(64, 512), *slabs(16, 1024),
        *((8, n, n, 16) for n in (16, 64, 128, 256)),
        *((8, n, 16, n) for n in (64, 128, 256)),
        (4, 512, 512, 64), (4, 512, 64, 512), (16, 32, 32, 8), (16, 32, 8, 32),
    ),
    elements=tuple(2**i for i in range(8, 21, 2)),
    other_dtypes=("bf16",),
)  # fmt: skip
GPU_DTYPES = ("bf16", "fp16", "tf32", "fp32")
GPU_QUICK = Sizes(
    dtypes=("bf16",),
    shapes=cubes(512, 1024, 2048, 4096, 8192) + slabs(512, 8192) + ((32, 2048, 2048, 128),),
    elements=(2**16, 2**20, 2**24, 2**28),
    other_dtypes=("fp16", "tf32", "fp32"),
)
GPU_FULL = Sizes(
    dtypes=GPU_DTYPES,
    shapes=(
        *cubes(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192),
        *slabs(128, 4096), *slabs(512, 8192), *slabs(1024, 8192), *slabs(2048, 16384),
        (1, 8192, 14336, 4096), (1, 8192, 4096, 14336), (1, 8192, 50304, 768),
        *((32, n, n, 128) for n in (512, 1024, 2048)), *((32, n, 128, n) for n in (512, 2048)),
    ),
    elements=tuple(2**i for i in range(12, 29, 2)),
)  # fmt: skip


def sizes_for(platform: str, quick: bool) -> Sizes:
    """Sizes measured on `platform` ("cpu", "gpu", ...)."""
    if platform == "cpu":
        return HOST_QUICK if quick else HOST_FULL
    return GPU_QUICK if quick else GPU_FULL


def matmul_cases(mesh: Mesh, sizes: Sizes) -> Iterator[Case]:
    """Yields every shape in every dtype, and square ones in the other dtypes."""
    for dtype in (*sizes.dtypes, *sizes.other_dtypes):
        for batch, m, n, k in sizes.shapes:
            if dtype in sizes.dtypes or (batch == 1 and m == n == k):
                sample = MatmulSample(dtype, batch, m, n, k, ())
                shapes = ((batch, m, k), (batch, k, n)) if batch > 1 else ((m, k), (k, n))
                yield Case(sample, mesh, _product(dtype), shapes, DTYPES[dtype])


def _product(dtype: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """A product as in the models: true fp32 for "fp32", else the device's default."""
    highest = dtype == "fp32"
    precision = jax.lax.Precision.HIGHEST if highest else jax.lax.Precision.DEFAULT
    return lambda a, b: jnp.matmul(a, b, precision=precision)
