"""What PyTorch reserves: the shipped factors are the medians of the published pairs."""

from statistics import median

import pytest

from experiments.published.reserve import deepspeed, ratios
from scaling.simulate.capacity import RESERVE


def test_the_shipped_factors_are_those_of_the_table():
    for software, by_source in ratios().items():
        assert all(ratio > 1 for ratio in by_source.values())
        assert RESERVE[software] == pytest.approx(median(by_source.values()), abs=0.005)
    factor, errors, _ = deepspeed()
    assert RESERVE["deepspeed"] == pytest.approx(factor, abs=0.005)
    assert len(errors["fit"]) == 15 and len(errors["left"]) == 22
