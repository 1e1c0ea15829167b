"""The scores of published kernels, of one chip with few rows."""

import json

import numpy as np
import pytest

from experiments.published import score_kernels
from experiments.published.kernel_scores import scores, without
from experiments.published.kernel_tables import tables
from scaling.meshes import catalog
from scaling.profiles.shipped import shipped_names

CHIP = "a100-pcie-80g"


@pytest.fixture(scope="module")
def few():
    return scores(chip=CHIP)


def test_every_row_has_a_time_a_chip_of_the_catalogue_and_sizes():
    for rows in tables():
        assert rows.key.chip in catalog.accelerator_names() and np.all(rows.seconds > 0)
        assert all(np.shape(values) == rows.seconds.shape for values in rows.sizes.values())


def test_a_score_has_errors_of_every_row_and_of_a_roofline_that_is_faster(few):
    for one in few:
        assert len(one.error) == len(one.left_out) == len(one.measured) == len(one.inside)
        assert np.all(one.error > -1) and np.all(one.roofline <= one.error + 1e-9)


@pytest.mark.parametrize("name", shipped_names())
def test_a_chip_that_is_left_out_has_nothing_of_its_own(name):
    chip = catalog.accelerator(name)
    for fit in without(chip).matmul:
        assert (
            fit.evidence.grade == "datasheet"
            and f"assumed as on {name}:" not in fit.evidence.source
        )


def test_the_results_are_a_page_a_document_and_a_picture(few, tmp_path):
    score_kernels.write(few, tmp_path)
    assert (tmp_path / f"{CHIP}.svg").exists()
    kinds = json.loads((tmp_path / "scores.json").read_text())["kinds"]
    assert kinds["product bf16, large"]["now"] < kinds["product bf16, large"]["roofline"]
