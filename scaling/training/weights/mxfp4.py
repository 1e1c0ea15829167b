"""Tensors in microscaling 4 bits, as gpt-oss's files have those of experts.

`NAME_blocks` [..., rows, groups, 16] holds 32 numbers of E2M1 in 16 bytes, the first in the low
half of a byte; `NAME_scales` [..., rows, groups] the exponents of two, plus 127, that multiply them
(OCP Microscaling Formats 1.0; transformers, integrations/mxfp4.py). NAME itself is their transpose
[..., groups x 32, rows]; every number of it is exact in bf16.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

POSITIVE = 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0  # E2M1 of the codes 0 to 7; 8 to 15: negative
VALUES = np.array([*POSITIVE, *(-value for value in POSITIVE)], np.float32)
GROUP, BIAS = 32, 127
BLOCKS, SCALES = "_blocks", "_scales"


@dataclass(frozen=True)
class Mxfp4:
    """One tensor of a file, with the methods of the library's slices."""

    blocks: Any
    scales: Any

    def get_shape(self) -> list[int]:
        """The shape of the numbers, not of the bytes."""
        *outer, rows, groups, _ = self.blocks.get_shape()
        return [*outer, groups * GROUP, rows]

    def get_dtype(self) -> str:
        """The narrowest format that has all of its numbers."""
        return "BF16"

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        *outer, columns, rows = index
        start, stop, _ = columns.indices(self.get_shape()[-2])
        groups = slice(start // GROUP, -(-stop // GROUP))
        blocks = self.blocks[(*outer, rows, groups)]
        codes = np.stack([blocks & 0xF, blocks >> 4], axis=-1)
        exponents = self.scales[(*outer, rows, groups)].astype(np.int32) - BIAS
        numbers = np.ldexp(VALUES[codes], exponents[..., None, None])
        lines = numbers.reshape(*numbers.shape[:-3], -1).swapaxes(-1, -2)
        first = groups.start * GROUP
        return lines[..., start - first : stop - first, :]


def unpacked(tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a file, each pair of blocks and scales as one; others stay as they are."""
    found = dict(tensors)
    for name in (name.removesuffix(BLOCKS) for name in tensors if name.endswith(BLOCKS)):
        blocks, scales = tensors[name + BLOCKS], tensors.get(name + SCALES)
        if scales is None or blocks.get_shape() != [*scales.get_shape(), GROUP // 2]:
            continue
        if len(scales.get_shape()) > 1 and {blocks.get_dtype(), scales.get_dtype()} == {"U8"}:
            found[name] = Mxfp4(found.pop(name + BLOCKS), found.pop(name + SCALES))
    return found
