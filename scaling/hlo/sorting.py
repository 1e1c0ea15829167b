"""Bytes that a sort on a GPU moves: it goes over its arrays several times.

    network   XLA's own: bitonic, one pass for every exchange over more than a tile, one for those
              inside (openxla/xla, xla/service/gpu, EmitSortThunkSequence and what it was before)
    radix     CUB's, for one or two arrays: a pass for every 8 bits of the key, and the keys read
              once before (Adinets and Merrill, Onesweep, arXiv 2206.01784)

A compile where no GPU is has networks only, though XLA takes CUB where it can: the cheaper of both
is priced. Positions that XLA adds to keep equal keys in order are no array of CUB's.
"""

import math
import re
from collections.abc import Container, Sequence

from scaling.hlo.parse import Computation, Instruction
from scaling.hlo.shapes import Array, arrays

# Elements: 1,024 threads, the most of a block, with four each; a smaller one: more passes.
TILE = 4096
MOST_ARRAYS = 2  # keys and values, of CUB's sort
DIGIT = 1  # bytes of a key that a pass of CUB's sort looks at
CUB = "__cub$DeviceRadixSort"  # how the targets of XLA's calls of it begin


def sort_bytes(sort: Instruction, computation: Computation, used: Container[int]) -> float:
    """Bytes that a `sort` reads and writes on a GPU; `used` are the numbers of results in use."""
    found, last = arrays(sort.shape), computation.operands(sort)[-1]
    added = last.opcode == "iota" and len(found) - 1 not in used
    along = re.findall(r"\d+", sort.attribute("dimensions") or "")
    length = found[0].dims[int(along[0])] if along and found[0].dims else 1
    network = 2 * network_passes(length) * float(sum(array.bytes for array in found))
    sorted_by_cub = found[:-1] if added else found
    if not 1 <= len(sorted_by_cub) <= MOST_ARRAYS:
        return network
    return min(network, radix_bytes(sorted_by_cub))


def network_passes(length: int) -> int:
    """Times that a bitonic network over `length` elements goes over the memory."""
    stages = math.ceil(math.log2(max(2, length)))
    passes, is_inside = 0, False
    for stage in range(stages):
        for mask in range(stage, -1, -1):
            distance = 2 ** (stage + 1) - 1 if mask == stage else 2**mask
            is_wide = distance >= TILE
            passes += is_wide or not is_inside
            is_inside = not is_wide
    return passes


def radix_bytes(found: Sequence[Array]) -> float:
    """Bytes that a radix sort of keys, and of values with them, reads and writes."""
    key, total = found[0], float(sum(array.bytes for array in found))
    digits = math.ceil(key.bytes / max(1, key.elements) / DIGIT)
    return 2 * digits * total + key.bytes
