"""The host check: varied cases, honest arithmetic, all raw data; not how fast this machine is."""

import json
from dataclasses import replace

import pytest
from pytest import approx

from experiments import host_check
from experiments.host_cases import CASES, DEVICES
from experiments.host_check import check, naive_time
from experiments.host_results import GOAL, Result, save, summary, verdict
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters, hardware_flops
from scaling.profiles.profile import (
    CollectiveFit,
    Evidence,
    MatmulFit,
    MemoryFit,
    Profile,
    VectorFit,
)
from scaling.profiles.samples import MatmulSample, Samples

HERE = Evidence("a test", "2026-11", "calibrated")
PROFILE = Profile(
    *("host", "two cores", "2026-11-21"),
    matmul=(MatmulFit("fp32", 1.0, HERE, peak=1e10),),
    memory=MemoryFit(1.0, HERE, 0.0, 1e9),
    vector=VectorFit(1e10, 1e9, HERE),
    collectives=tuple(
        CollectiveFit(kind, 8, 1, 1e-5, 1e9, HERE)
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")
    ),
    samples=Samples(matmul=(MatmulSample("fp32", 1, 100, 100, 100, (1e-3, 2e-3, 9.0)),)),
    overlap=False,
)


def result(predicted=1.0, measured=(1.0, 1.0, 1.0), naive=0.5):
    return Result("case", {}, 10**6, predicted, {}, naive, measured, 3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_has_eight_devices_and_1_to_50_million_parameters(case):
    assert case.mesh.devices == DEVICES
    assert 1e6 < count_parameters(case.run.model).total < 50e6
    assert case.sequences % (case.microbatches * case.mesh.data * case.mesh.fsdp) == 0


def test_summary_has_absolute_errors():
    found = summary([result(0.9), result(1.1), result(1.6)])
    assert found["mean_error"] == approx(0.8 / 3)
    assert (found["median_error"], found["worst_error"]) == (approx(0.1), approx(0.6))
    assert found["mean_naive_error"] == approx(0.5)
    assert found["goal"] == GOAL
    assert "missed" in verdict(found)


def test_spread_of_the_machine_widens_the_goal():
    found = summary([result(1.2, (0.8, 0.9, 1.0, 1.1, 1.2))])
    assert found["goal"] == approx(2 * 0.2)
    assert "reached" in verdict(found)


def test_naive_time_is_flops_over_the_rate_of_the_largest_product():
    run = CASES[0].run
    work = hardware_flops(run.model, run.batch.global_batch, run.batch.seq_len, run.remat)
    assert naive_time(run, PROFILE) == approx(work / 8 / (2e6 / 2e-3))


@pytest.mark.slow
def test_case_is_predicted_measured_and_saved(tmp_path, monkeypatch):
    small = replace(CASES[0], width=64, layers=1, length=16, vocabulary=64)
    monkeypatch.setattr(host_check, "WINDOW", 0.0)
    assert small.mesh == MeshShape(data=8)
    results = check([small], PROFILE, repeats=3)
    (found,) = results
    assert found.predicted == approx(sum(found.parts.values()))
    assert len(found.measured) == 3 and min(found.measured) > 0
    save(results, PROFILE, tmp_path / "new", "")
    document = json.loads((tmp_path / "new" / "results.json").read_text())
    assert document["results"][0]["measured"] == list(found.measured)
    assert document["summary"] == summary(results)
    assert (tmp_path / "new" / "calibration.json").exists()
    page = (tmp_path / "new" / "README.md").read_text()
    assert small.name in page and verdict(summary(results)) in page
