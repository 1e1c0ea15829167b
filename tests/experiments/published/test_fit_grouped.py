"""The shipped products of experts are those that the script fits to the published records."""

import numpy as np
import pytest

from experiments.published.fit_grouped import RECORDED, TRAINED, fits, fitted, left_out, off
from scaling.profiles.shipped import shipped, table


def test_the_shipped_grouped_products_can_be_fitted_again():
    found, own = fits(), table("grouped")
    assert found.keys() == own.keys()
    for chip, fit in found.items():
        assert own[chip][0].share == pytest.approx(fit.share, rel=0.01)
        assert own[chip][0].fill == pytest.approx(fit.fill, rel=0.05)
        assert own[chip][0].evidence.samples == fit.evidence.samples


@pytest.mark.parametrize("chip", [*RECORDED, TRAINED])
def test_a_chip_that_is_left_out_is_priced_by_the_others(chip):
    assert np.median(np.abs(off(chip, *left_out(chip)))) < 0.1


def test_ranges_hold_four_of_five_records():
    for chip in ("h100-sxm", TRAINED):
        fit = table("grouped")[chip][0]
        within = np.log1p(off(chip, fit, fitted(chip, fit.fill)[1]))
        assert np.mean(np.abs(within) <= np.log1p(fit.evidence.error_p90)) >= 0.75


@pytest.mark.parametrize("chip", ["h100-sxm", "b200-sxm", "a100-sxm-80g", "l40s"])
def test_products_of_experts_are_never_faster_than_products(chip):
    profile = shipped(chip)
    for beside, fit in zip(profile.grouped, profile.matmul, strict=True):
        assert beside.dtype == fit.dtype
        assert beside.efficiency <= fit.efficiency and beside.sustained <= fit.sustained
        assert beside.fill >= fit.fill
