"""A calibration as a whole: samples in, fits and a file out."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pytest import approx

from scaling.calibration import calibrate as module
from scaling.calibration.calibrate import (
    all_cases,
    calibrate,
    profile_of_samples,
    shipped_links,
    with_host_fits,
)
from scaling.calibration.cases import matmul_cases
from scaling.calibration.fit import attention_flops
from scaling.calibration.sizes import HOST_FULL
from scaling.calibration.timing import Effort
from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.profiles import machine
from scaling.profiles.io import profile_of, read_profile, write_profile
from scaling.profiles.machine import OtherLoad
from scaling.profiles.samples import (
    AttentionSample,
    CollectiveSample,
    MatmulSample,
    MemorySample,
    Samples,
    StepSample,
)
from scaling.program.ir import Kernel, Program
from scaling.run.recipes import recipe

RATE, BANDWIDTH, OVERHEAD, ALPHA = 5e10, 8e9, 2e-6, 30e-6


def made_up() -> Samples:
    """Samples of a machine of exactly these rates."""
    matmul = [
        MatmulSample("fp32", 1, n, n, n, (OVERHEAD + 2 * n**3 / RATE,) * 3) for n in (32, 128, 512)
    ]
    memory = [
        MemorySample(kind, size, (OVERHEAD + size / BANDWIDTH,))
        for kind in ("copy", "reduce", "transpose")
        for size in (2**12, 2**16, 2**20)
    ]
    least = OVERHEAD + 2**12 / BANDWIDTH
    vector = [
        MemorySample("elementwise", 2**12, (least + 1e6 / RATE,), 1e6),
        MemorySample("transcendental", 2**12, (least + 1e6 / BANDWIDTH,), 0.0, 1e6),
    ]
    attention = [
        AttentionSample("fp32", 1, 2, t, t, 16, way, (1.0,))
        for t in (64, 128, 256)
        for way in ("forward", "backward")
    ]
    timed = [(p, (attention_flops(p) / RATE,)) for p in attention]
    collective = [
        CollectiveSample(kind, 4, 2, size, (ALPHA + size / BANDWIDTH,))
        for kind in ("all-reduce", "permute")
        for size in (2**12, 2**16, 2**20)
    ]
    attention = [AttentionSample(*list(vars(p).values())[:-1], seconds) for p, seconds in timed]
    return Samples(tuple(matmul), tuple(memory + vector), tuple(attention), tuple(collective))


@pytest.fixture(scope="module")
def profile():
    return profile_of_samples(made_up(), "a machine", "2026-01-31", {"jax": "0"})


def test_the_fits_find_the_rates_that_made_the_points(profile):
    (matmul,) = profile.matmul
    assert matmul.peak == approx(RATE, rel=0.01)
    assert matmul.overhead == approx(OVERHEAD, rel=0.05)
    assert profile.memory.bandwidth == approx(BANDWIDTH, rel=0.01)
    assert profile.vector.flops == approx(RATE, rel=0.01)
    assert profile.vector.transcendentals == approx(BANDWIDTH, rel=0.01)
    assert [fit.direction for fit in profile.attention] == ["forward", "backward"]
    assert all(fit.peak == approx(RATE, rel=0.01) for fit in profile.attention)


def test_parts_of_a_kernel_add_up_or_not_as_the_machine_has_it():
    host = profile_of_samples(made_up(), "m", "2026-01-31", {})
    gpu = profile_of_samples(made_up(), "m", "2026-01-31", {}, overlap=True)
    assert (host.overlap, gpu.overlap) == (False, True)
    assert host.memory.evidence == host.vector.evidence != gpu.memory.evidence
    assert gpu.memory.bandwidth == approx(BANDWIDTH, rel=0.01)


def test_a_gpu_has_the_links_that_are_known_of_it():
    h100 = catalog.accelerator("h100-sxm")
    assert shipped_links(h100.title) == profile_of(h100).links
    assert shipped_links("cpu") == shipped_links("a chip from nowhere") == ()


def test_whole_steps_give_the_factor_of_programs(profile):
    assert with_host_fits(profile, (), ()).step is None
    program = Program("p", "compiled", {"data": 8}, (Kernel("k", bytes=1e6),), ())
    run = replace(recipe("tiny"), mesh=MeshShape(data=8))
    alone = OVERHEAD + 1e6 / BANDWIDTH
    found = with_host_fits(
        profile, (StepSample("s", 0.0, 0.0, (1.5 * alone,)),) * 2, [(program, run)] * 2
    )
    assert found.step.slowdown == approx(1.5, rel=0.02)
    assert found.samples.step[0].kernels == approx(alone, rel=0.02)


def test_every_fit_says_where_it_comes_from(profile):
    for fit in (*profile.matmul, profile.memory, *profile.collectives):
        assert fit.evidence.source == "scaling calibrate on a machine"
        assert fit.evidence.grade == "calibrated"
        assert fit.evidence.samples and fit.evidence.max_error < 0.02


def test_a_profile_keeps_its_raw_points_on_disk(profile, tmp_path):
    write_profile(profile, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == profile
    assert profile.samples.matmul[0].seconds == made_up().matmul[0].seconds


def test_all_kinds_are_measured_on_the_devices_present():
    kinds = {type(case.sample) for case in all_cases(quick=True)}
    assert kinds == {MatmulSample, MemorySample, AttentionSample, CollectiveSample}
    by_hand = len(list(matmul_cases(module.everywhere(), HOST_FULL)))
    found = [case for case in all_cases(quick=False) if isinstance(case.sample, MatmulSample)]
    assert len(found) == by_hand


@pytest.mark.slow
def test_measuring_a_few_operations_gives_a_profile_of_this_machine(monkeypatch):
    chosen = [c for c in all_cases(quick=True) if _small(c.sample)]
    monkeypatch.setattr(module, "all_cases", lambda quick: chosen)
    monkeypatch.setattr(module, "step_benches", lambda devices, quick: ())
    monkeypatch.setattr(module, "QUICK", Effort(1e-4, 1e-4, repeats=2, steps=0))
    monkeypatch.setattr(OtherLoad, "share", lambda self: 0.5)
    told: list[str] = []
    profile = calibrate(quick=True, progress=told.append)
    assert profile.other_load == 0.5 and "warning: other processes used 50%" in told[-1]
    assert profile.machine == machine.machine()
    assert profile.versions["jax"] == machine.versions()["jax"]
    assert len(profile.samples.matmul) == 2 and len(profile.samples.memory) >= 6
    assert profile.samples.dispatch and profile.dispatch
    assert profile.step is None  # without whole steps
    assert all(len(sample.seconds) == 2 for sample in profile.samples.matmul)
    assert any("repeat 2 of 2" in text for text in told)


def _small(sample) -> bool:
    if isinstance(sample, CollectiveSample):
        return sample.bytes <= 2**16
    if isinstance(sample, MatmulSample):
        return sample.m == sample.n == sample.k and sample.m < 64
    return isinstance(sample, MemorySample) and sample.bytes < 2**17 and sample.kind in module.FUSED


def test_the_machine_says_how_many_devices_and_cores_it_has():
    assert machine.machine() == machine.host(8)
    assert machine.host(3).startswith("3 x cpu (")
    assert f"{machine.cores()} cores" in machine.machine()


def test_a_processor_without_a_name_is_called_by_its_architecture(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "none")
    assert machine.cpu_model()
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Fast CPU @ 3 GHz\n")
    monkeypatch.setattr(machine, "CPU_INFO", Path(tmp_path / "cpuinfo"))
    assert machine.cpu_model() == "Fast CPU @ 3 GHz"


@pytest.mark.parametrize(("user", "warns"), [(5, ""), (60, "other processes use 60%")])
def test_a_machine_that_does_something_else_is_warned_about(monkeypatch, tmp_path, user, warns):
    statistics = tmp_path / "stat"
    monkeypatch.setattr(machine, "STATISTICS", statistics)
    statistics.write_text("cpu 100 0 0 900 0 0 0 0 0 0\ncpu0 50 0 0 450 0 0 0 0 0 0\n")
    monkeypatch.setattr(machine.os, "times", lambda: os.times_result((2.0, 1.0, 0.0, 0.0, 9.0)))
    later = f"cpu {100 + user} 0 0 {990 - user} 10 0 0 0 0 0\n"
    monkeypatch.setattr(machine.time, "sleep", lambda _: statistics.write_text(later))
    found = machine.busy()
    assert found.startswith(warns) and bool(found) == bool(warns)


def test_a_system_without_statistics_is_not_called_busy(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "STATISTICS", tmp_path / "none")
    assert machine.busy() == ""
