"""`scaling chip`."""

import pytest

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from tests.scaling.questions.formulas import check


@pytest.mark.parametrize("name", catalog.accelerator_names())
def test_every_chip_of_the_catalogue_is_answered(name):
    chip = catalog.accelerator(name)
    if not chip.peaks:
        with pytest.raises(InputError, match="calibrate"):
            sc.chip(name)
        return
    answer = check(sc.chip(name, dtype=next(iter(chip.peaks))))
    assert {f"peak {dtype}" for dtype in chip.peaks} <= {part.name for part in answer.parts}


def test_the_guides_figures_of_an_h100():
    answer = sc.chip("h100-sxm")
    assert float(answer) == pytest.approx(295.3, abs=0.1)
    assert answer["fp32 lanes"].answer == 16_896
    assert float(answer["vector rate"]) == pytest.approx(33.5e12, rel=2e-3)


def test_a_format_that_a_chip_lacks_is_named_with_those_it_has():
    with pytest.raises(InputError, match="fp16"):
        sc.chip("v100-sxm-16g", dtype="fp8")
