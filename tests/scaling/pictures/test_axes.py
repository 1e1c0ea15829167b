"""Ticks stand at round numbers inside of the axis, and a scale keeps the order of its values."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.pictures.axes import Frame, Scale, log_scale
from scaling.pictures.shapes import Text, text_width


@pytest.mark.parametrize("base", [0, 2, 10])
@pytest.mark.parametrize("factor", [1.02, 1.5, 2.3, 7.0, 40.0, 1e4, 1e11])
def test_every_axis_has_a_few_ticks_inside(base, factor):
    for low in (1e-6, 0.024, 0.9, 2.1, 31.0, 4e9):
        scale = Scale(low, factor * low, base=base)
        places = list(scale.places())
        assert 1 < len(places) < 20, places
        assert all(0.999999 * low <= place <= 1.000001 * factor * low for place in places)
        shares = [scale.share(value) for value in np.linspace(low, factor * low, 20)]
        assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == pytest.approx(1)


def test_an_axis_of_one_number_is_drawn():
    assert Frame(Scale(5.0, 5.0), Scale(0.0, 0.0)).picture("", [], {}).shapes
    assert log_scale([7.0], "x", str).places()


def test_linear_ticks_are_round():
    assert list(Scale(0, 3.9).places()) == [0, 1, 2, 3]
    assert list(Scale(0, 110).places()) == [0, 20, 40, 60, 80, 100]
    assert list(Scale(0.02, 300, base=10).places()) == [0.1, 1, 10, 100]


@given(st.floats(0.5, 5000), st.integers(0, 6))
def test_numbers_below_an_axis_are_equally_spaced_and_apart(high, digits):
    scale = Scale(0, high, show=lambda value: f"{value:.{digits}f} units")
    drawn = Frame(scale, Scale(0, 1)).picture("", [], {})
    words = [s for s in drawn.shapes if isinstance(s, Text) and s.anchor == "middle"]
    gaps = [after.x - before.x for before, after in pairwise(words)]
    assert all(gap == pytest.approx(gaps[0], abs=0.01) for gap in gaps)
    halves = [text_width(text.words, text.size) / 2 for text in words]
    ends = [(text.x - half, text.x + half) for text, half in zip(words, halves, strict=True)]
    assert words and all(end < begin for (_, end), (begin, _) in pairwise(ends))
