"""What PyTorch reserves: the shipped factors are the medians of the published pairs."""

from statistics import median

import numpy as np
import pytest

from experiments.published.reserve import Outcome, deepspeed, needed, ratios, shipped
from scaling.simulate.capacity import GATHERED, NEEDED, RESERVE


def test_the_shipped_factors_are_those_of_the_table():
    for software, by_source in ratios().items():
        assert all(ratio > 1 for ratio in by_source.values())
        assert RESERVE[software] == pytest.approx(median(by_source.values()), abs=0.005)
    factor, errors, _ = deepspeed()
    assert RESERVE["deepspeed"] == pytest.approx(factor, abs=0.005)
    assert len(errors["fit"]) == 15 and len(errors["left"]) == 22


@pytest.mark.slow
def test_what_is_needed_is_fitted_on_who_ran():
    for gathers, demand in ((False, NEEDED), (True, GATHERED)):
        found = shipped()[gathers]
        figures = demand.median, demand.sigma
        assert (found.median, found.sigma) == pytest.approx(figures, abs=0.005)


def test_a_known_need_is_found_again():
    rooms = np.exp(np.random.default_rng(0).normal(0.2, 0.5, 4000))
    takes = np.exp(np.random.default_rng(1).normal(0.2, 0.3, 4000))
    rows = [
        Outcome("", 8, take <= room, room, False) for room, take in zip(rooms, takes, strict=True)
    ]
    assert needed(rows) == pytest.approx((np.exp(0.2), 0.3), rel=0.1)
