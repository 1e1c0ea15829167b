"""Rows of the buffers of tokens that experts multiply; their size is static.

T tokens of a device, each to k of n experts, and P devices along `expert`, n / P experts on each:

    dropless                  P * T * min(k, n / P)      every token may go to the same device
    device capacity factor d  ceil(d * T * k)            d times an even load, for all experts of a
                                                         device together; no more than dropless
    capacity factor c         n * ceil(c * T * k / n)    c times an even load, for each expert

are the rows of one layer on a device, of d_model elements each. An even load fills T * k of them.
With room for all the buffer is P * min(k, n / P) / k times that: 1 on one device, 4 for Mixtral
(k = 2 of 8) over P = 8, 8 for DeepSeek-V3 (k = 8 of 256) over P = 8.

With a capacity factor the rows themselves are exchanged, P groups each way. Else every device
gathers the tokens of all P and picks its rows: (P - 1) * T elements of d_model arrive, never more
than in rows with room for all, and min(k, n / P) times fewer.

Kernels of our own skip empty rows, and keep for the backward pass the first KEPT times an even load
(`models.moe.grouped_mlps`). Where they do not run, rows are multiplied in tiles of one expert each
(`models.moe.grouped_matmul`): the last tile of each is filled up.
"""

import math

from scaling.models.accounting.matrices import expert_width
from scaling.models.config import ModelConfig, Moe

TILE = 8, 512  # least and most rows of a tile
LEAST_BLOCK = 16  # of a side of a matrix that kernels multiply: what tensor cores want of each
KEPT = 1.25  # capacity factor of training in Switch Transformers: arXiv 2101.03961, section 2.2


def capacity(moe: Moe, tokens: int) -> int:
    """Rows of one expert with a capacity factor, for the `tokens` of a device."""
    assert moe.capacity_factor is not None
    even = tokens * moe.experts_per_token / moe.n_experts
    return min(tokens, math.ceil(moe.capacity_factor * even))


def buffer_rows(moe: Moe, tokens: int, devices: int) -> int:
    """Rows of a device's buffer, of `devices` that have so many `tokens` of a microbatch each."""
    if moe.capacity_factor is not None:
        return moe.n_experts * capacity(moe, tokens)
    every = devices * tokens * min(moe.experts_per_token, moe.n_experts // devices)
    if moe.device_capacity_factor is None:
        return every
    return min(every, math.ceil(moe.device_capacity_factor * tokens * moe.experts_per_token))


def kernels_divide(config: ModelConfig, tensor: int) -> bool:
    """True if kernels of our own can multiply the experts of a device of `tensor`: dropless, of
    whole blocks, and with no copy of a token for each of several experts that weigh inputs."""
    moe = config.moe
    assert moe is not None
    is_copied = moe.weighs_inputs and moe.experts_per_token > 1
    sides = config.d_model, expert_width(config)
    is_whole = sides[0] % LEAST_BLOCK == 0 == sides[1] % (tensor * LEAST_BLOCK)
    return is_whole and not is_copied and moe.capacity_factor is None


def kept_rows(moe: Moe, tokens: int, devices: int) -> int:
    """Rows of which kernels save the inputs of the activation; those of further rows are computed
    again (`models.moe.grouped_mlps`)."""
    kept = math.ceil(KEPT * tokens * moe.experts_per_token)
    return min(buffer_rows(moe, tokens, devices), kept)


def tile_size(rows: int, groups: int) -> int:
    """Rows of a tile: a power of two near the mean size of a group, so that few tiles are empty."""
    least, most = TILE
    return min(most, max(least, 1 << (-(-rows // groups) - 1).bit_length()))


def tile_count(rows: int, groups: int, tile: int) -> int:
    """Tiles that suffice for all rows, whatever the sizes of the groups."""
    return rows // tile + groups
