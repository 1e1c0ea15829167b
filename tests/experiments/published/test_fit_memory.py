"""The shipped streams are those that the script fits to published kernels."""

import numpy as np
import pytest

from experiments.published.fit_memory import casts, fits, left_out, off
from scaling.profiles.shipped import table


def test_the_shipped_streams_can_be_fitted_again():
    found, own = fits(), table("memory")
    assert found.keys() == own.keys()
    for chip, fit in found.items():
        for name in ("efficiency", "overhead", "l2", "best"):
            assert getattr(own[chip][0], name) == pytest.approx(getattr(fit, name), rel=0.01)
        assert own[chip][0].evidence.samples == fit.evidence.samples


@pytest.mark.parametrize("chip", casts())
def test_ranges_hold_four_of_five_casts(chip):
    """Errors of a chip by its own figures, and with the chip left out."""
    evidence = table("memory")[chip][0].evidence
    within = lambda errors, p90: np.mean(np.abs(np.log1p(errors)) <= np.log1p(p90))
    assert within(off(chip, table("memory")[chip][0]), evidence.error_p90) >= 0.8
    assert within(off(chip, left_out(chip)), evidence.latency_p90) >= 0.8
