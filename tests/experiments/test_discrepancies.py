"""The study of discrepancies: its pairs can be trained, and its page says what was found."""

import json

import pytest

from experiments.discrepancies import PAIRS, Pair, Result, described, save
from scaling.comparing.discrepancy import ONCE_PER_STEP, PRODUCTS, Discrepancy
from scaling.meshes.placement import check_fits
from scaling.run.parallelism.checks import check_trainable

SAVED = Discrepancy(
    "data", "all-reduce", 2e6, 1e6, 3.0, ("%ar = all-reduce()",), ONCE_PER_STEP, -1e-3
)


def result(*discrepancies):
    return Result(
        PAIRS[0], {"data all-reduce": {"expected": 2e6, "found": 1e6}}, 0.5, discrepancies
    )


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_every_pair_can_be_trained_and_fits_its_cluster(pair):
    run, shape, cluster = described(pair)
    check_fits(shape, cluster)
    check_trainable(run, shape)


def test_a_name_tells_what_is_not_the_default():
    assert Pair("llama3-8b", "fsdp=8", "dgx-h100").name == "llama3-8b fsdp=8 dgx-h100 none"
    own = Pair("llama3-8b", "fsdp=8", "dgx-h100", "full", 2, 0, "fp32").name
    assert own.endswith("full x2 fp32 its own batch")


def test_other_products_leave_the_bytes_as_they_were_asked():
    assert result().matches and not result(SAVED).matches
    assert result(Discrepancy("", PRODUCTS, 1.0, 2.0, 1.0, (), ONCE_PER_STEP, 1.0)).matches


def test_the_results_are_saved_as_data_and_as_a_page(tmp_path):
    path = save([result(), result(SAVED)], tmp_path)
    data, page = json.loads(path.read_text()), (path.parent / "README.md").read_text()
    assert [pair["matches"] for pair in data["pairs"]] == [True, False]
    assert data["pairs"][1]["discrepancies"][0]["lines"] == ["%ar = all-reduce()"]
    assert "1 of 2 pairs move what the table says" in page
    assert f"1 x {ONCE_PER_STEP}" in page and "saves 1 ms" in page
