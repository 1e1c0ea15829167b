"""Watts of boards and devices: bounds, parts that sum up, and ranges that hold the value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.profiles.power import Ranged, combined, device_watts, power_file

SHARE, RATE = st.floats(0, 1), st.floats(0, 1e13)


@given(st.floats(10, 2000), SHARE, RATE, RATE, SHARE)
def test_a_board_draws_between_idle_and_its_limit(most, utilization, memory, network, busy):
    board = power_file().board
    power = board.power(most, utilization, memory, network, busy)
    assert board.idle * most <= power.total <= board.limit * most * (1 + 1e-9)
    parts = power.idle + power.arithmetic + power.memory + power.network
    assert parts == pytest.approx(float(power.total))


@given(st.floats(100, 1000), SHARE, SHARE)
def test_more_work_and_less_waiting_draw_more(most, utilization, busy):
    power = power_file().board.power
    one, more = power(most, utilization / 2), power(most, utilization)
    assert one.total <= more.total * (1 + 1e-12)
    waits = power(most, utilization * busy, busy=busy)
    assert waits.total <= power(most, utilization).total * (1 + 1e-9)


@given(st.floats(100, 600), st.integers(1, 100), st.floats(1, 3))
def test_a_device_draws_more_than_its_board(board, nodes, pue):
    watts = device_watts(board, 700, nodes, pue)
    assert watts.low < watts.value < watts.high
    assert watts.value > device_watts(board, 700, 1, 1).value * (1 - 1e-12)


def test_ranges_multiply_in_logarithms():
    both = combined(Ranged(1, 0.5, 2), Ranged(10, 10, 10))
    assert (both.low, both.value, both.high) == pytest.approx((5, 10, 20))
    with pytest.raises(InputError, match="--pue=0.9 must be from 1 to 10"):
        device_watts(500, 700, 1, 0.9)
