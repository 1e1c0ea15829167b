"""The shipped matrix products are those that the script fits to published tables."""

import numpy as np
import pytest

from experiments.published import fit_products
from scaling.profiles.shipped import POWER, table


@pytest.mark.slow
def test_the_shipped_products_can_be_fitted_again():
    for chip, found in fit_products.fits().items():
        for fit, own in zip(found, table("products")[chip], strict=True):
            assert fit.dtype == own.dtype
            for name in ("efficiency", "sustained", "stream", "best"):
                assert getattr(fit, name) == pytest.approx(getattr(own, name), rel=0.01)
    for _, _, exponent in fit_products.power_exponents():
        assert exponent == pytest.approx(POWER, abs=0.05)


def test_measured_products_are_priced_within_their_evidence():
    for (chip, recipe), shapes in fit_products.tables().items():
        if recipe in fit_products.RECIPES:
            fit = next(fit for fit in table("products")[chip] if fit.dtype == shapes.dtype)
            off = np.abs(np.expm1(fit_products.log_errors(shapes, fit)))
            assert np.median(off) == pytest.approx(fit.evidence.median_error, rel=0.05)
            assert np.median(off) < 0.1


def test_xlas_table_is_the_same_form_with_a_call_outside_a_graph():
    """Another laboratory's products, of which nothing but the time of a call is fitted."""
    for chip, dtype in (("h100-sxm", "bf16"), ("b200-sxm", "bf16"), ("b200-sxm", "fp8")):
        fit = next(fit for fit in table("products")[chip] if fit.dtype == dtype)
        _, call, errors = fit_products.called_by_xla(chip, fit)
        assert 1.5e-6 < call < 3.5e-6 and np.median(np.abs(errors)) < 0.07
