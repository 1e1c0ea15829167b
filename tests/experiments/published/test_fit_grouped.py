"""The shipped grouped products are those that the script fits to the published records."""

import numpy as np
import pytest

from experiments.published.fit_grouped import FITTED, fits, fitted, records, seconds
from scaling.meshes import catalog
from scaling.profiles.shipped import shipped
from scaling.simulate.products import efficiency


def test_the_shipped_grouped_products_can_be_fitted_again():
    for chip, found in fits().items():
        for fit, own in zip(found, shipped(chip).grouped, strict=False):
            assert (fit.dtype, fit.evidence.grade) == (own.dtype, own.evidence.grade)
            assert fit.efficiency == pytest.approx(own.efficiency, rel=0.01)
            assert fit.half_sizes == pytest.approx(own.half_sizes, rel=0.05)


@pytest.mark.parametrize("chip", FITTED)
def test_records_are_priced_within_their_evidence_and_never_above_the_peak(chip):
    (fit, idle), of = fitted(chip), records(chip)
    off = np.abs(seconds(of, chip, fit, idle) / of.seconds - 1)
    assert np.median(off) == pytest.approx(fit.evidence.median_error)
    assert np.max(efficiency(fit, of.kernel.dims, "bf16", catalog.accelerator(chip), 1.0)) <= 1
