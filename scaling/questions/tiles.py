"""What tiles add to an array: a device's part has its last dimensions padded to whole tiles.

XLA lays arrays out in memory so, f32[3,5] in T(2,2) as [4,6] (https://openxla.org/xla/tiled_layout).
"""

from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.array import size_formula
from scaling.questions.notation import Dim, Expression, format_array, product_text
from scaling.questions.sharding import ShapeContext

LARGEST = 2**20  # of a tile along one dimension; far beyond any layout, chosen by this project


def read_tile(text: str) -> tuple[int, ...]:
    """Return the sizes of a tile, those of the last dimensions, from "8,128".

    Raises:
        InputError: what is no list of whole numbers.
    """
    sizes = [part.strip() for part in text.split(",")]
    digits = all(size.isascii() and size.isdigit() for size in sizes)
    if not digits or not all(1 <= int(size) <= LARGEST for size in sizes):
        raise InputError(
            f"--tile {text!r} is no tile; write its sizes, such as 8,128, of 1 to {LARGEST:,}"
        )
    return tuple(map(int, sizes))


def tiled(asked: Expression, setting: ShapeContext, tile: tuple[int, ...]) -> tuple[Answer, Answer]:
    """Return the bytes of a device's part in whole tiles, and how many times more that is.

    Args:
        asked: one array.
        setting: mesh, sizes and number format.
        tile: sizes along the last dimensions.

    Raises:
        InputError: a resharding or product, or a tile of more dimensions than the array.
    """
    array = asked.operands[0]
    if len(asked.operands) > 1 or asked.result is not None:
        raise InputError("--tile is about one array, such as fp32[3,5]")
    if len(tile) > len(array.dims):
        raise InputError(
            f"--tile has {len(tile)} dimensions, {format_array(array, setting.mesh)} has "
            f"{len(array.dims)}"
        )
    plain, inputs = size_formula(array, setting)
    sizes = (None,) * (len(array.dims) - len(tile)) + tile
    b = next(given for given in inputs if given.unit == "bytes")
    terms = [_part(dim, size) for dim, size in zip(array.dims, sizes, strict=True)]
    name = f"bytes in tiles of {'x'.join(map(str, tile))}"
    padded = by_formula(name, "bytes", " * ".join((*terms, b.symbol)), inputs)
    bytes = by_formula("", "bytes", plain, inputs)
    whole = (Input("P", float(padded), "bytes", name), Input("V", float(bytes), "bytes", "without"))
    return padded, by_formula("growth by tiles", "", "P / V", whole)


def _part(dim: Dim, tile: int | None) -> str:
    """Return a dimension of a device's part as text, in whole tiles where it has one."""
    own = f"{dim.name} / {product_text(dim.axes)}" if dim.axes else dim.name
    return own if tile is None else f"ceil({own} / {tile}) * {tile}"
