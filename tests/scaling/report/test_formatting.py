"""Rows of text in columns, and figures as words."""

import pytest

from scaling.meshes.units import percent, three_digits
from scaling.report.formatting import columns


def test_first_column_is_flush_left_others_right():
    assert columns([("a", "10", "x"), ("long", "5", "yy")]) == ["a     10   x", "long   5  yy"]


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.4123, "41.2%"), (0, "0.0%"), (0.0004, "under 0.1%"), (0.001, "0.1%"), (1.5, "150.0%")],
)
def test_small_shares_are_not_called_nothing(share, words):
    assert percent(share) == words


def test_no_more_digits_than_a_prediction_has():
    assert three_digits(407_938.2) == "408,000"
    assert three_digits(12.34) == "12"
    assert three_digits(0) == "0"
