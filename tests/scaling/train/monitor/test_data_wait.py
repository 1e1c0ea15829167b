"""Seconds that each host waits for its data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.train.monitor.data_wait import SLOW, gathered_data_wait, slow_data_message

SECONDS = st.floats(1e-4, 1e3)


@given(SECONDS, st.integers(1, 9))
def test_equal_waits_are_not_called_slow(seconds, count):
    assert slow_data_message([seconds] * count, seconds) is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), SECONDS)
def test_a_process_is_named_only_if_the_step_waits_a_quarter_for_it(waits, step_time):
    message = slow_data_message(waits, step_time)
    if message:
        assert f"process {waits.index(max(waits))} waits" in message
        assert max(waits) >= SLOW * step_time


def test_the_process_with_slow_data_is_named():
    message = slow_data_message([0.0, 0.4, 0.001], 0.5)
    assert "process 1 waits 400.0 ms a step" in message and "others 0.5 ms" in message


def test_a_single_process_gathers_its_own_mean():
    assert gathered_data_wait([0.1, 0.3]) == [pytest.approx(0.2)]
