"""The shipped matrix products are those that the script fits to the measured table."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.published.fit_kernels import profiles, tables
from scaling.meshes import catalog
from scaling.profiles.shipped import shipped
from scaling.simulate.kernels import kernel_time


def test_the_shipped_products_can_be_fitted_again():
    for chip, profile in profiles().items():
        for found, fit in zip(profile.matmul, shipped(chip).matmul, strict=True):
            assert (found.dtype, found.tile) == (fit.dtype, fit.tile)
            assert found.efficiency == pytest.approx(fit.efficiency, rel=0.01)
            assert found.sustained == fit.sustained
            assert found.best == pytest.approx(fit.best, rel=1e-4)
            assert found.half_sizes[2] == pytest.approx(fit.half_sizes[2], rel=0.02)


def test_measured_products_are_priced_within_their_evidence():
    for (chip, dtype), shapes in tables().items():
        fit = next(fit for fit in shipped(chip).matmul if fit.dtype == dtype)
        short = replace(
            shipped(chip), matmul=(replace(fit, sustained=1.0),)
        )  # over before it counts
        priced = kernel_time(shapes.kernel, catalog.accelerator(chip), short).time
        assert np.median(np.abs(priced / shapes.seconds - 1)) < fit.evidence.mean_error
