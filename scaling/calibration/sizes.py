"""What is measured: shapes and sizes for fake host devices and for GPUs, quick or in full.

Cubes show how the rate of products grows with size; slabs, which of the three dimensions matters.
"""

from dataclasses import dataclass

Shape = tuple[int, int, int, int]  # of a product: batch, m, n, k
Heads = tuple[int, int, int, int]  # of attention: sequences, heads, tokens, head_dim


@dataclass(frozen=True)
class Sizes:
    """Shapes and sizes that are measured."""

    dtypes: tuple[str, ...]
    shapes: tuple[Shape, ...]  # of products
    elements: tuple[int, ...] = ()  # of the tensors of memory operations
    other_dtypes: tuple[str, ...] = ()  # of products, for cubes only
    attention: tuple[Heads, ...] = ()
    messages: tuple[int, ...] = ()  # bytes of collectives


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
    attention=((2, 2, 64, 16), (2, 2, 128, 32)),
    messages=(2**10, 2**14, 2**18, 2**20, 2**22),
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
    attention=tuple(
        (batch, 2, tokens, head)
        for batch, tokens in ((1, 32), (2, 64), (2, 128), (1, 256), (1, 512))
        for head in (16, 64)
    ),
    messages=tuple(2**i for i in range(10, 23, 3)),
)  # fmt: skip
GPU_QUICK = Sizes(
    dtypes=("bf16",),
    shapes=cubes(512, 1024, 2048, 4096, 8192) + slabs(512, 8192) + ((32, 2048, 2048, 128),),
    elements=(2**16, 2**20, 2**24, 2**28),
    other_dtypes=("fp16", "tf32", "fp32"),
    attention=((8, 16, 1024, 64), (2, 16, 4096, 128)),
    messages=(2**16, 2**22, 2**28),
)
GPU_FULL = Sizes(
    dtypes=("bf16", "fp16", "tf32", "fp32"),
    shapes=(
        *cubes(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192),
        *slabs(128, 4096), *slabs(512, 8192), *slabs(1024, 8192), *slabs(2048, 16384),
        (1, 8192, 14336, 4096), (1, 8192, 4096, 14336), (1, 8192, 50304, 768),
        *((32, n, n, 128) for n in (512, 1024, 2048)), *((32, n, 128, n) for n in (512, 2048)),
    ),
    elements=tuple(2**i for i in range(12, 29, 2)),
    attention=tuple(
        (16384 // tokens, 16, tokens, head)
        for tokens in (512, 1024, 2048, 4096, 8192)
        for head in (64, 128)
    ),
    messages=tuple(2**i for i in range(12, 31, 2)),
)  # fmt: skip


def sizes_for(platform: str, quick: bool) -> Sizes:
    """Sizes measured on `platform` ("cpu", "gpu", ...)."""
    if platform == "cpu":
        return HOST_QUICK if quick else HOST_FULL
    return GPU_QUICK if quick else GPU_FULL
