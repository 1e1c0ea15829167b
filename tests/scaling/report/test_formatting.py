"""Rows of text in columns, and figures as words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.report.formatting import columns, percent, three_digits

CELLS = st.text(alphabet="abc 12", max_size=6)


def test_first_column_is_flush_left_others_right():
    assert columns([("a", "10", "x"), ("long", "5", "yy")]) == ["a     10   x", "long   5  yy"]


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5))
def test_lines_are_as_many_as_rows_and_never_wider_than_the_widest_cells(rows):
    lines = columns(rows)
    assert len(lines) == len(rows)
    width = sum(max(len(row[i]) for row in rows) for i in range(3)) + 2 * 2
    assert all(len(line) <= width and line == line.rstrip() for line in lines)


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
