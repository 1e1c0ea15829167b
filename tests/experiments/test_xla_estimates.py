"""XLA's estimates against counts by hand: what is kept, and what the page says of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.figures.xla_estimates import LEAST, MOST, RESULTS
from experiments.xla_estimates import __main__ as command
from experiments.xla_estimates.case import Count, Row
from experiments.xla_estimates.table import markdown, page, planned, tables
from scaling.meshes import catalog

FOLDER = sorted(RESULTS.glob("*-xla-estimates"))[-1]
ROWS = {row.name: row for row in command.read(FOLDER)}
PAGE = Path(__file__).parents[2] / "docs" / "xla_estimates.md"


def test_the_page_has_the_stored_figures() -> None:
    assert markdown(list(ROWS.values())) in PAGE.read_text()
    assert f"results/{FOLDER.name}/README.md" in PAGE.read_text()


def test_the_page_is_right_about_where_xla_is_right_and_wrong() -> None:
    over = lambda name: ROWS[name].xla_flops / (ROWS[name].flops or 1)
    for name in ("product", "fusion", "kept", "network"):
        assert over(name) == pytest.approx(1, abs=0.01)
    assert (over("scan"), over("while")) == pytest.approx((1 / 32, 1 / 64), rel=0.01)
    assert all(ROWS[name].xla_flops == -1 for name in ("cudnn", "convolution", "pallas"))
    assert ROWS["lookup"].xla_bytes > 50 * (ROWS["lookup"].bytes or 0)
    assert ROWS["network"].traced_flops == 8 * ROWS["network"].xla_flops


def test_our_counts_are_those_by_hand() -> None:
    as_executed = ("remat", "causal")  # computed twice, and where the mask hides
    for row in ROWS.values():
        if row.flops and row.name not in as_executed:
            assert row.our_flops == pytest.approx(row.flops, rel=0.03), row.name
        if row.bytes and row.name != "graph":  # of which a part is found in the cache
            assert row.our_bytes == pytest.approx(row.bytes, rel=0.02), row.name
        assert row.our_seconds >= row.least_seconds or row.name == "graph"


def test_the_plan_is_the_sum_of_its_parts_and_what_we_walk_through() -> None:
    for row in ROWS.values():
        assert row.compiler_peak is not None
        assert row.compiler_peak <= planned(row) <= 1.05 * row.compiler_peak
        assert row.our_peak == pytest.approx(row.compiler_peak, rel=0.02), row.name


def test_every_ratio_lies_on_the_picture() -> None:
    for row in ROWS.values():
        for hand, found in ((row.flops, row.our_flops), (row.bytes, row.our_bytes)):
            assert not hand or LEAST < found / hand < MOST


def test_rows_are_read_back(tmp_path: Path) -> None:
    rows = [replace(ROWS["scan"], flops=None), ROWS["svd"]]
    command.write(rows, tmp_path)
    assert command.read(tmp_path) == rows
    assert (tmp_path / "README.md").read_text().count("scan") > 3
    text = tables(rows)
    assert "open" in text and "none" not in text and "none" in tables([ROWS["cudnn"]])
    assert "`svd`: an SVD by cuSOLVER." in page(rows, "abc", {"jax": "1"})


def test_the_least_time_is_that_of_products_or_of_bytes() -> None:
    chip = catalog.accelerator("h100-sxm")
    assert Count(1e12).least_time(chip) == 1e12 / chip.peak("bf16")
    assert Count(1e12, 3.35e9, dtype="").least_time(chip) == pytest.approx(1e-3)
    assert Count().least_time(chip) == 0


def test_an_unknown_program_is_refused_with_the_nearest(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        command.main(["scam"])
    assert "scan" in capsys.readouterr().err


@pytest.mark.deviceless
@pytest.mark.slow
@pytest.mark.parametrize("name", ["product", "scan", "cudnn", "lookup", "network"])
def test_the_figures_are_those_of_this_jax(name: str) -> None:
    from experiments.xla_estimates.measure import measured
    from experiments.xla_estimates.programs import cases

    found: Row = measured(next(case for case in cases() if case.name == name))
    for field in ("xla_flops", "xla_bytes", "our_flops", "our_bytes"):
        assert getattr(found, field) == pytest.approx(getattr(ROWS[name], field), rel=0.01)
