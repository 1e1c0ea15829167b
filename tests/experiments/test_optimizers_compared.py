"""The comparison of optimisers: its cases can be trained, and its page shows its results."""

import json
from pathlib import Path

import pytest

from experiments.optimizers import STEPS, cases, table
from scaling.meshes.shape import MeshShape
from scaling.run.optimizers import DEFAULTS
from scaling.run.parallelism.checks import check_settings, check_trainable

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "2026-11-22-number-formats"
DOCUMENT = json.loads((RESULTS / "results.json").read_text())


@pytest.mark.parametrize("name", cases())
def test_every_case_can_be_trained(name: str) -> None:
    run = cases()[name]
    check_settings(run)
    check_trainable(run, MeshShape())


def test_every_optimizer_and_schedule_is_compared() -> None:
    runs = cases().values()
    assert {run.optimizer for run in runs} == set(DEFAULTS)
    assert {run.train.schedule for run in runs} == {"cosine", "linear", "constant", "wsd"}
    assert {run.precision.optimizer_state for run in runs} == {"fp32", "bf16"}
    assert {run.precision.compute for run in runs} == {"fp32", "bf16", "fp8"}


def test_the_page_shows_the_saved_results() -> None:
    assert table(DOCUMENT) in (RESULTS / "README.md").read_text()
    assert set(DOCUMENT["cases"]) == set(cases())


@pytest.mark.parametrize("name", DOCUMENT["cases"])
def test_every_case_learned(name: str) -> None:
    losses = DOCUMENT["cases"][name]["losses"]
    assert len(losses) == STEPS
    assert sum(losses[-10:]) / 10 < losses[0] - 1


@pytest.mark.parametrize(("compute", "off"), [("bf16", 0.01), ("fp8", 0.03)])
def test_narrow_products_end_near_float32(compute: str, off: float) -> None:
    wide, narrow = (DOCUMENT["cases"][n]["losses"] for n in ("adamw", f"adamw, products {compute}"))
    assert sum(narrow[-10:]) / 10 == pytest.approx(sum(wide[-10:]) / 10, abs=off)
    assert narrow != wide


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_state_in_bf16_ends_where_float32_does(name: str, rounding: str) -> None:
    ends = [
        sum(DOCUMENT["cases"][case]["losses"][-10:]) / 10
        for case in (name, f"{name}, state bf16 {rounding}")
    ]
    assert ends[1] == pytest.approx(ends[0], abs=0.01)
