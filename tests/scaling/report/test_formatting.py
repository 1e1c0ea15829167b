"""Rows of text in columns, and figures as words."""

import pytest

from scaling.meshes.units import percent, three_digits
from scaling.report.formatting import columns, folded


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


def test_long_sentences_are_folded_and_rows_of_tables_are_not():
    row = "  name   12 ms   " + "x" * 60 + "   9"
    text = "\n".join(["    256 x matmul: 2.75 ms = max(1.92 TFLOP / 701 TFLOP/s) + 5.46 us", row])
    lines = folded(text, 66).split("\n")
    assert lines[:2] == [
        "    256 x matmul: 2.75 ms = max(1.92 TFLOP / 701 TFLOP/s) +",
        "        5.46 us",
    ]
    assert lines[2:] == [row]
    assert folded("short", 66) == "short"
