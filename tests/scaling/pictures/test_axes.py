"""Ticks stand at round numbers inside of the axis, and a scale keeps the order of its values."""

import numpy as np
import pytest

from scaling.pictures.axes import Frame, Scale, log_scale


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
