"""Sums of parts, and lines with a knee: what made the samples is found, nothing is negative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.calibration.regression import FASTEST, line_or_knee, lines, parts, rate
from scaling.meshes.reading import LARGEST

SIZES = np.array([2.0**i for i in range(10, 31, 2)])
SECONDS = st.floats(1e-9, 1.0)


@given(st.lists(SECONDS, min_size=6, max_size=6), st.integers(0, 2**32))
def test_no_part_is_negative_and_none_could_be_better(seconds, seed):
    """Against the best of all choices of kinds, each by ordinary least squares."""
    work, seconds = np.random.default_rng(seed).uniform(0, 1, (6, 4)), np.array(seconds)
    found, loss = parts(work, seconds)
    assert (found >= 0).all()
    relative, losses = work / seconds[:, None], [6.0]  # of no kind at all
    for kinds in ([i for i in range(4) if choice >> i & 1] for choice in range(1, 16)):
        solution = np.linalg.lstsq(relative[:, kinds], np.ones(6), rcond=None)[0]
        if (solution >= 0).all():
            losses.append(float(((relative[:, kinds] @ solution - 1) ** 2).sum()))
    assert loss == pytest.approx(min(losses), rel=1e-6, abs=1e-9)


@given(st.sampled_from([2.0**i for i in range(16, 25)]), st.floats(1.5, 20))
def test_a_knee_is_found_where_it_was_made(cache, slower):
    near, alpha = 1e-10, 1e-6
    seconds = alpha + near * np.minimum(SIZES, cache)
    seconds = seconds + slower * near * np.maximum(SIZES - cache, 0)
    overhead, per_byte, bend, rate_near = line_or_knee(SIZES, seconds)
    if rate_near is not None:  # else a line was close enough
        assert 1 / rate_near <= per_byte * (1 + 1e-12)
        predicted = overhead + np.minimum(SIZES, bend) / rate_near
        predicted = predicted + per_byte * np.maximum(SIZES - bend, 0)
        assert np.abs(predicted / seconds - 1).max() < 0.5
    else:
        assert slower < 3


def test_a_line_has_no_knee():
    seconds = 1e-6 + SIZES * 1e-10
    assert line_or_knee(SIZES, seconds) == (*lines(SIZES, seconds)[:2], 0.0, None)


def test_no_rate_is_too_large_for_a_file():
    assert all(rate(seconds) <= LARGEST for seconds in (0.0, 1e-300))
    assert rate(0.0) == pytest.approx(FASTEST)
