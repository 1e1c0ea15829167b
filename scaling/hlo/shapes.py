"""Shapes as HLO writes them: `bf16[8,1024]{1,0}`, and tuples of them, nested."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

# bits per element of XLA's primitive types (openxla/xla, xla/xla_data.proto)
BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
    "c64": 64, "c128": 128, "f4e2m1fn": 4, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3fn": 8,
    "f8e4m3b11fnuz": 8, "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
    "token": 0, "opaque": 0,
}  # fmt: skip
HOST_MEMORY = 5  # XLA's memory space for the host's pinned memory (xla/service/host_memory_offload)
# Of a TPU, whose layouts have tiles, those in the chip: vector memory, flags, scalar memory.
VECTOR_MEMORY, FLAGS, SCALAR_MEMORY = 1, 2, 6
TILES = "T("

ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^}]*)\})?")
SPACE = re.compile(r"S\((\d+)\)")
GAP = re.compile(r"[ ,]*(?:/\*index=\d+\*/)?")


@dataclass(frozen=True)
class Array:
    """One array, or a token or opaque value of no bytes."""

    dtype: str  # XLA's name: "bf16", "s32"
    dims: tuple[int, ...]
    layout: tuple[int, ...] = ()  # dimension numbers from the fastest to the slowest
    memory_space: int = 0  # 0: the device's memory
    is_tiled: bool = False  # as on a TPU

    @cached_property
    def elements(self) -> int:
        return math.prod(self.dims)

    @cached_property
    def bytes(self) -> int:
        """Bytes, without padding between arrays."""
        return -(-self.elements * BITS[self.dtype] // 8)

    @property
    def is_on_host(self) -> bool:
        """True for an array in the host's memory."""
        return self.memory_space == HOST_MEMORY

    @property
    def is_in_chip(self) -> bool:
        """True for an array in a TPU's vector or scalar memory: none of its bytes is of HBM."""
        return self.is_tiled and self.memory_space in (VECTOR_MEMORY, FLAGS, SCALAR_MEMORY)


Shape = Array | tuple["Shape", ...]
Path = tuple[int, ...]  # index of a leaf in a nested tuple; () for an array itself


def leaves(shape: Shape, path: Path = ()) -> Iterator[tuple[Path, Array]]:
    """Every array of a shape with its index."""
    if isinstance(shape, Array):
        yield path, shape
    else:
        for i, part in enumerate(shape):
            yield from leaves(part, (*path, i))


def arrays(shape: Shape) -> list[Array]:
    """Every array of a shape."""
    return [array for _, array in leaves(shape)]


def size(shape: Shape) -> int:
    """Bytes of all arrays of a shape."""
    return sum(array.bytes for array in arrays(shape))


def parse_shape(text: str, start: int = 0) -> tuple[Shape, int]:
    """The shape that begins at `start`, and where it ends.

    Raises:
        ValueError: no shape, an element type that is not known, a dimension that is not static.
    """
    if text.startswith("(", start):
        return _tuple(text, start + 1)
    found = ARRAY.match(text, start)
    if found is None:
        raise ValueError(f"no shape at column {start}")
    dtype, dims, layout = found.groups()
    if dtype not in BITS:
        raise ValueError(f"unknown element type {dtype!r}")
    if not all(n.strip().isdigit() for n in dims.split(",") if dims):
        raise ValueError(f"dimensions [{dims}] are not static")
    order, _, rest = (layout or "").partition(":")
    space = SPACE.search(rest)
    sizes = tuple(int(n) for n in dims.split(",") if dims)
    minor = tuple(int(n) for n in order.split(",") if n)
    number = int(space[1]) if space else 0
    return Array(dtype, sizes, minor, number, TILES in rest), found.end()


def _tuple(text: str, at: int) -> tuple[Shape, int]:
    parts: list[Shape] = []
    while True:
        gap = GAP.match(text, at)
        at = gap.end() if gap else at
        if text.startswith(")", at):
            return tuple(parts), at + 1
        part, at = parse_shape(text, at)
        parts.append(part)
