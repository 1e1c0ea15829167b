"""Overlapped layers: when their products wait, and what a legend names."""

import pytest

from scaling.pictures.curves import curves
from scaling.pictures.pipeline import overlap, schedule
from scaling.pictures.svg import svg_text


@pytest.mark.parametrize(("gather", "products"), [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (0.0, 1.0)])
def test_a_layer_takes_as_long_as_the_slower_of_its_gather_and_its_products(gather, products):
    begins = [begin for _, begin in schedule(gather, products, 6)]
    assert begins[0] == gather
    steps = [later - begin for begin, later in zip(begins, begins[1:], strict=False)]
    assert steps == [max(gather, products)] * 5


def test_a_layer_is_drawn_waiting_only_where_its_weights_come_late():
    assert svg_text(overlap(3.0, 1.0, 5)).count("<title>waits") == 5
    assert (
        svg_text(overlap(1.0, 3.0, 5)).count("<title>waits") == 1
    )  # the first has nothing to hide behind


def test_every_curve_and_mark_is_named():
    lines = [(name, [(1, 1), (10, 10)], number, 0) for number, name in enumerate("abc")]
    drawn = svg_text(curves(lines, [("here", 3, 3)], "x", "y", at=2))
    assert all(f">{name}</text>" in drawn for name in (*"abc", "here", "x", "y"))
