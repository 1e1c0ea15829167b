"""Whole steps: small models that fit the devices, run again and again, priced beside."""

from dataclasses import replace

import pytest
from pytest import approx

from experiments.host_cases import CASES
from scaling.calibration import steps as module
from scaling.calibration.steps import Steps, priced_alone, reference_runs, step_benches
from scaling.meshes.errors import InputError
from scaling.profiles.samples import StepSample
from scaling.program.ir import Kernel, Program, collectives, kernels
from tests.scaling.host_profile import host_profile


@pytest.mark.parametrize("devices", [1, 2, 4, 6, 8])
def test_reference_runs_use_all_devices(devices):
    runs = list(reference_runs(devices, quick=False))
    assert all(run.mesh.devices == devices for run in runs)
    assert list(reference_runs(devices, quick=True)) == runs[:2]


def test_no_reference_run_is_a_case_of_the_host_check():
    shape = lambda run: (run.model.d_model, run.model.n_layers, run.batch.seq_len, str(run.mesh))
    references = {shape(run) for run in reference_runs(8, quick=False)}
    assert not references & {shape(case.run) for case in CASES}


@pytest.fixture(scope="module")
def smallest():
    """The second reference run, with less in it."""
    run = list(reference_runs(8, quick=True))[1]
    model = replace(run.model, n_layers=1, d_model=64, d_ff=64, vocab_size=64)
    return Steps(replace(run, model=model, batch=replace(run.batch, seq_len=16)))


@pytest.mark.slow
def test_every_call_is_a_step(smallest):
    losses = [float(smallest()["loss"]) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]  # the same tokens, again and again


@pytest.mark.slow
def test_its_program_is_what_runs(smallest):
    assert any(kernel.flops for kernel, _ in kernels(smallest.program))
    assert {c.axes for c, _ in collectives(smallest.program)} >= {("data",), ("tensor",)}
    assert smallest.program.compiler_peak


def test_models_that_do_not_fit_the_devices_are_left_out(monkeypatch):
    def refuse(run):
        raise InputError("does not divide")

    monkeypatch.setattr(module, "Steps", refuse)
    assert list(step_benches(8, quick=False)) == []


def test_points_say_what_kernels_alone_would_take():
    kernel = Kernel("k", kind="matmul", flops=2e9, dtype="fp32", dims=(1, 1000, 1000, 1000))
    program = Program("p", "compiled", {"data": 8}, (kernel,), ())
    run = next(reference_runs(8, quick=True))
    blank = StepSample("r", 0.0, 0.0, (1.0,))
    (sample,) = priced_alone([blank], [(program, run)], host_profile())
    assert sample == StepSample("r", approx(0.2), approx(0.0), (1.0,))
