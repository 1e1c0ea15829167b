"""Zigzag order: a permutation, the same work everywhere, and no device visited for nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.attention_kernels.zigzag import (
    ring_hops,
    visible_rows,
    window_reach,
    zigzag_order,
    zigzag_positions,
)

DEVICES = st.integers(1, 9)
CHUNKS = st.integers(1, 12)
WINDOWS = st.integers(1, 60)


def held(device: int, devices: int, chunk: int) -> np.ndarray:
    return zigzag_positions(device, devices, 2 * chunk)


def test_four_devices_by_hand():
    assert zigzag_order(16, 4).tolist() == [0, 1, 14, 15, 2, 3, 12, 13, 4, 5, 10, 11, 6, 7, 8, 9]


def test_one_device_has_its_sequence_as_it_was_even_of_odd_length():
    assert zigzag_order(7, 1).tolist() == list(range(7))


@given(DEVICES, CHUNKS)
def test_every_token_is_on_one_device(devices, chunk):
    assert sorted(zigzag_order(2 * devices * chunk, devices)) == list(range(2 * devices * chunk))


@given(DEVICES, CHUNKS)
def test_devices_hold_their_part_of_the_order_in_ascending_positions(devices, chunk):
    parts = zigzag_order(2 * devices * chunk, devices).reshape(devices, -1)
    for device, part in enumerate(parts):
        assert held(device, devices, chunk).tolist() == part.tolist()
        assert (np.diff(part) > 0).all()


@given(DEVICES, CHUNKS)
def test_every_device_has_as_many_causal_pairs_of_tokens_as_any_other(devices, chunk):
    pairs = {int((held(i, devices, chunk) + 1).sum()) for i in range(devices)}
    assert len(pairs) == 1


def seen_by(device: int, other: int, devices: int, chunk: int, window: int | None) -> np.ndarray:
    """bool [queries of device, keys of other]."""
    distance = held(device, devices, chunk)[:, None] - held(other, devices, chunk)
    return (distance >= 0) & (distance < (window or len(distance) * devices))


@given(DEVICES, CHUNKS, st.none() | WINDOWS)
def test_a_device_walks_to_those_whose_keys_are_seen_and_no_further(devices, chunk, window):
    shifts = [s for walk in ring_hops(devices, window_reach(window, chunk)) for s in walk]
    met = {s % devices for s in shifts}
    needed = {
        (device - other) % devices
        for device in range(devices)
        for other in range(devices)
        if device != other and seen_by(device, other, devices, chunk, window).any()
    }
    assert len(met) == len(shifts) and 0 not in met
    assert met == needed


@given(DEVICES, CHUNKS, st.none() | WINDOWS)
def test_other_chunks_see_the_last_rows_of_a_chunk_and_their_first_queries_see_them(
    devices, chunk, window
):
    rows = visible_rows(window, chunk)
    for device in range(devices):
        for other in range(devices):
            seen = seen_by(device, other, devices, chunk, window)
            for a in (0, 1):  # early, late queries
                for b in (0, 1):
                    if device == other and a == b:
                        continue
                    part = seen[a * chunk :, b * chunk :][:chunk, :chunk]
                    assert not part[rows:].any() or window is None or window > chunk
                    assert not part[:, : chunk - rows].any()


def test_without_a_window_the_ring_is_walked_once_around():
    assert ring_hops(4, None) == ((1, 2, 3), ())
    assert ring_hops(1, None) == ((), ())


@pytest.mark.parametrize(("reach", "expected"), [(0, ((), ())), (1, ((1,), (-1,)))])
def test_a_short_window_walks_both_ways(reach, expected):
    assert ring_hops(8, reach) == expected
