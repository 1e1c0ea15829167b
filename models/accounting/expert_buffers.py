"""Rows of the buffers in which tokens are exchanged over `expert`; their size is static.

T tokens of a device, each to k of n experts, and P devices along `expert`, n / P experts on each:

    dropless           P * T * min(k, n / P)      every token may go to the same device
    capacity factor c  n * ceil(c * T * k / n)    c times an even load, for each expert by itself

are the rows that a device sends and receives in one layer, of d_model elements each. An even load
fills T * k of them. Without capacity the buffer is P * min(k, n / P) / k times that: 1 on one
device, 4 for Mixtral (k = 2 of 8) over P = 8, 8 for DeepSeek-V3 (k = 8 of 256) over P = 8.

Where grouped products have no kernel, rows are multiplied in tiles of one expert each
(`models.moe.grouped_matmul`): the last tile of each is filled up.
"""

import math

from scaling.models.config import Moe

TILE = 8, 512  # least and most rows of a tile


def capacity(moe: Moe, tokens: int, devices: int) -> int:
    """Rows of one group: of an expert with a capacity factor, of a device without."""
    if moe.capacity_factor is None:
        return tokens * min(moe.experts_per_token, moe.n_experts // devices)
    even = tokens * moe.experts_per_token / moe.n_experts
    return min(tokens, math.ceil(moe.capacity_factor * even))


def exchange_rows(moe: Moe, tokens: int, devices: int) -> int:
    """Rows that a device sends, and receives, for its `tokens` of one microbatch."""
    groups = devices if moe.capacity_factor is None else moe.n_experts
    return groups * capacity(moe, tokens, devices)


def tile_size(rows: int, groups: int) -> int:
    """Rows of a tile: a power of two near the mean size of a group, so that few tiles are empty."""
    least, most = TILE
    return min(most, max(least, 1 << (-(-rows // groups) - 1).bit_length()))


def tile_count(rows: int, groups: int, tile: int) -> int:
    """Tiles that suffice for all rows, whatever the sizes of the groups."""
    return rows // tile + groups
