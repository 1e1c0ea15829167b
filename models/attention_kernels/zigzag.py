"""Zigzag order of a sequence over the devices of `context`, so that all have equal work.

    C devices, 2 C chunks; device i has one early and one late chunk, i and 2 C - 1 - i:

    C = 4     device 0: 0 7     device 1: 1 6     device 2: 2 5     device 3: 3 4

A query of chunk n needs the chunks 0..n, so each device has  (i + 1) + (2 C - i) = 2 C + 1  pairs
of chunks to do, whatever i. (Without this order the first device would be nearly idle.)

Tokens are put into this order on the host, before they are sent to devices; positions follow it;
the loss is a mean over tokens, which no order changes. With C = 1 the order is unchanged.
"""

from typing import Any

import numpy as np


def zigzag_order(seq_len: int, devices: int) -> np.ndarray:
    """Position of each token in the order of storage, device after device: int [seq_len].

    `seq_len` is a multiple of 2 C, if there are several devices.
    """
    rows = seq_len // devices
    return np.concatenate([zigzag_positions(device, devices, rows) for device in range(devices)])


def zigzag_positions(device: Any, devices: int, rows: int) -> Any:
    """Positions of the `rows` tokens of a sequence on one device: int [rows].

    `device` may be traced by jax; `rows` is even, if there are several devices.
    """
    if devices == 1:
        return np.arange(rows)
    late, within = np.divmod(np.arange(rows), rows // 2)
    chunk = device + late * (2 * devices - 1 - 2 * device)
    return chunk * (rows // 2) + within


def ring_hops(devices: int, reach: int | None) -> tuple[tuple[int, ...], ...]:
    """Shifts s of the devices i - s whose keys device i needs: along the ring, and against it.

    Without a window (`reach` None) (1, 2, ..., C - 1) and (). Device i - s has no chunk within
    `reach` of any of device i's, for any i, if s is further from 0 (around the ring).
    """
    along = devices - 1 if reach is None else min(reach, devices - 1)
    against = 0 if reach is None else min(reach, devices - 1 - along)
    return tuple(range(1, along + 1)), tuple(range(-1, -against - 1, -1))


def window_reach(window: int | None, chunk: int) -> int | None:
    """Number of chunks before its own that a token may see into; None: all, without a window."""
    return None if window is None else (window + chunk - 2) // chunk


def visible_rows(window: int | None, chunk: int) -> int:
    """Number of last tokens of each chunk that other chunks' queries may see: window - 1, one more
    where that is odd, because cuDNN takes a mask of an even number of keys alone."""
    return chunk if window is None else min(chunk, window // 2 * 2)
