"""The fit of attention: its rows, and that the shipped figures are what it finds."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.published.fit_attention import (
    FOREIGN,
    LITTLE,
    SERVING,
    TILE,
    cases,
    chosen,
    fitted,
)
from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.profiles.profile import attention_fit
from scaling.profiles.shipped import table


def test_every_published_row_is_a_case():
    assert sum(len(case.seconds) for case in cases()) == 8694 + 24  # and the figures of cuDNN
    assert {case.direction for case in cases()} == {"forward", "backward", "decode"}


def test_a_fit_has_the_rows_of_its_chip_without_foreign_software():
    own = chosen("gb200", "backward", "fp8", library="cudnn")
    assert {case.chip for case in own} == {"gb200"} and {case.dtype for case in own} == {"fp8"}
    assert not [c for c in chosen("gb200", "forward") if c.software in FOREIGN]


def test_decoding_is_fitted_on_what_no_cache_holds():
    cache = catalog.accelerator("l40s").l2_cache
    for case in chosen("l40s", "decode"):
        moved = case.kernel.bytes[case.in_memory]
        assert np.all((moved <= LITTLE) | (moved >= cache))


def test_shipped_figures_are_those_of_the_fit():
    (stated,) = (fit for fit in table("attention")["a100-sxm-80g"] if fit.direction == "backward")
    base = replace(stated, efficiency=0.5, softmax=1.0, start=10.0, memory=0.5, best=1.0)
    found = fitted(chosen("a100-sxm-80g", "backward"), base, SERVING[1:])
    assert found.tile == TILE
    for name in ("efficiency", "start", "memory"):
        assert getattr(found, name) == pytest.approx(getattr(stated, name), rel=0.02)


@pytest.mark.parametrize("chip", sorted(table("attention")))
def test_every_chip_has_figures_of_each_pass_with_an_error(chip):
    profile = profile_of(catalog.accelerator(chip))
    for direction in ("forward", "backward", "decode"):
        fit = attention_fit(profile, direction)
        assert fit.direction == direction and fit.evidence.error_p90 > 0.05
