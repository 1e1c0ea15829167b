"""The shipped loss beside collectives is the one that the published mixtures give."""

import numpy as np
import pytest

from experiments.published.fit_overlap import (
    BEFORE,
    CHIPS,
    fitted,
    left_out,
    log_errors,
    median,
    mixtures,
    pairs_of,
)
from scaling.profiles.io import INTERFERENCE


@pytest.fixture(scope="module")
def pairs():
    return pairs_of(mixtures())


def test_the_shipped_loss_can_be_fitted_again(pairs):
    machines = list(dict.fromkeys(pairs.machine))
    errors = np.concatenate([errors for _, errors, _ in left_out(pairs, machines)])
    known, found = INTERFERENCE.evidence, fitted(pairs)
    assert (found.cores, found.most) == (INTERFERENCE.cores, INTERFERENCE.most)
    assert known.samples == len(errors)
    assert known.median_error == pytest.approx(median(errors), abs=5e-4)
    assert known.error_p90 == pytest.approx(np.quantile(np.abs(errors), 0.9), abs=5e-4)


def test_a_chip_that_was_left_out_is_priced_better_than_by_one_loss_for_all(pairs):
    for chip, errors, _ in left_out(pairs, list(CHIPS.values())):
        before = log_errors(pairs[np.char.startswith(pairs.machine, chip)], BEFORE)
        assert median(errors) < min(0.08, median(before))
