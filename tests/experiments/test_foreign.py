"""The collection of programs of others: what its frame counts, judges and writes."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from experiments.foreign import __main__ as command
from experiments.foreign import before, one
from experiments.foreign.result import Priced
from experiments.foreign.table import page, summary
from experiments.foreign.work import Work
from scaling.meshes.catalog.load import accelerator

FINE = Priced(
    "a", "A", 2, 1.0, 1e9, "", 1, 0.02, 0.01, 0.03, "datasheet", (), 1e12, 1e12, 0.01, 1e9, 1e9
)


@pytest.mark.parametrize(
    ("change", "judged"),
    [
        ({}, "plausible"),
        ({"error": "ValueError: no"}, "refused"),
        ({"error": "no environment .venv-foreign/x"}, "not run"),
        ({"high": None, "time": 0.001}, "open"),
        ({"time": 0.009}, "too fast"),
        ({"flops": 1.2e12}, "FLOPs"),
        ({"flops": 1.2e12, "note": "a reason"}, "plausible"),
        ({"time": 0.11}, "slow"),
        ({"peak": 1.03e9}, "memory"),
        ({"peak": 1.03e9, "warnings": ("memory: 1 GB at the peak",)}, "plausible"),
    ],
)
def test_a_price_is_judged_by_the_count_by_hand(change: dict, judged: str) -> None:
    assert replace(FINE, **change).judgement == judged


def test_the_least_time_is_that_of_products_or_of_bytes() -> None:
    chip = accelerator("h100-sxm")
    assert Work(flops=989.4e12).least_time(chip) == pytest.approx(1, rel=0.01)
    assert Work(bytes=3.35e12).least_time(chip) == pytest.approx(1, rel=0.01)
    assert Work(989.4e12, 6.7e12).least_time(chip) == pytest.approx(2, rel=0.01)
    assert Work().least_time(chip) == 0


def test_glue_is_what_price_holds() -> None:
    from experiments.foreign.programs import int8_matmul

    assert "return" in inspect.getsource(int8_matmul.price)
    assert one.glue(int8_matmul) == 3


def test_the_collection_has_more_than_forty_programs_that_say_what_they_are() -> None:
    names = one.names()
    assert len(names) > 40
    for name in names:
        text = (Path(one.__file__).parent / "programs" / f"{name}.py").read_text()
        assert text.startswith('"""') and "WORK = Work(" in text and "def price()" in text, name


def test_programs_that_need_packages_say_which() -> None:
    assert one.needs("maxtext_llama2_7b") == "maxtext"
    assert one.needs("lora") == ""


def test_a_program_without_its_environment_is_not_run(tmp_path: Path) -> None:
    row = command.run("levanter_gpt2", tmp_path)
    assert row.judgement == "not run" and "levanter" in row.error


def test_results_are_read_back_and_stay_beside_new_ones(tmp_path: Path) -> None:
    command.write([FINE], tmp_path, "a commit")
    other = replace(FINE, name="b", error="ValueError: no", glue=9)
    command.write([other], tmp_path, "a commit")
    stored = json.loads((tmp_path / "foreign.json").read_text())["programs"]
    assert [command.read(row) for row in stored] == [FINE, other]
    text = (tmp_path / "README.md").read_text()
    assert "2 programs, 1 with a price" in text and "Refused: ValueError: no." in text


def test_the_summary_counts_and_has_no_figures_without_a_price() -> None:
    assert "1 of 1 within 10% of the count by hand" in summary([FINE])
    assert summary([replace(FINE, error="x")]) == "1 programs, 0 with a price: 1 refused."
    assert "`a`: A." in page([FINE], "abc", {"jax": "1"})


def test_the_page_has_an_earlier_commit_beside_what_is_now(tmp_path: Path) -> None:
    refused = {"name": "a", "judgement": "refused", "glue": 9, "peak_ratio": None}
    document = {"commit": "abc", "what": "How.", "programs": [refused, refused | {"name": "gone"}]}
    (tmp_path / "before.json").write_text(json.dumps(document))
    command.write([FINE], tmp_path, "a commit")
    text = (tmp_path / "README.md").read_text()
    assert "Before: 1 refused; glue 9 lines in the median, 9 at most" in text
    assert "Now: 1 plausible; glue 2 lines" in text and "1 of 1 within 2%" in text
    assert before.part(document, []) == ""


def test_blind_programs_are_summed_up_alone() -> None:
    text = page([FINE, replace(FINE, name="blind_b")], "abc", {"jax": "1"})
    assert "before their first price: 1 programs, 1 with a price" in text


def test_an_unknown_program_is_named_with_the_nearest(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        command.main(["resnet50"])
    assert "resnet50_pmap" in capsys.readouterr().err


@pytest.mark.deviceless
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["attention_causal", "callbacks", "gpt_fsdp", "hybrid_mesh", "pallas_cost_estimate"]
)
def test_a_program_is_priced_with_the_products_counted_by_hand(name: str) -> None:
    row = one.priced(name)
    assert not row.error
    assert row.flops_ratio == pytest.approx(1, abs=0.1)
    assert row.peak_ratio == pytest.approx(1, abs=0.02)


def test_stored_results_have_half_of_the_glue_within_five_lines() -> None:
    folder = sorted((Path(one.__file__).parents[1] / "results").glob("*-foreign"))[-1]
    rows = json.loads((folder / "foreign.json").read_text())["programs"]
    assert median(row["glue"] for row in rows if not row["error"]) <= 5
