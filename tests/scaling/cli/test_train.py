"""`scaling train`: what it leaves in a run folder beside what the loop writes."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scaling.api import train
from scaling.api.train import TrainResult
from scaling.cli import main
from scaling.cli import train as train_command
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import profile_of
from scaling.report import training as words
from scaling.run import save_run
from scaling.simulate.step import price
from scaling.simulate.summary import summarize
from scaling.training import running, starting
from scaling.training.checkpoint.checkpoints import CheckpointError
from scaling.training.launch import supervisor
from scaling.training.run_folder.folder import Options

H100 = catalog.load("dgx-h100")


@pytest.fixture
def made(hand_step):
    priced = price(hand_step, H100, profile_of(H100.accelerator))
    return priced, summarize(priced)


def test_what_an_earlier_run_predicted_goes_where_there_is_no_prediction(
    tmp_path, toy, made, monkeypatch, capsys
):
    plan, programs = (
        SimpleNamespace(run=toy(), mesh=None),
        SimpleNamespace(compiled=None, tokens=None, model_flops=None),
    )

    def refuse(*_):
        raise InputError("never measured")

    monkeypatch.setattr(running, "predict_compiled", lambda *_: made)
    predicted = train.predict_first(plan, programs, tmp_path)
    assert predicted is not None and predicted.step_time == made[1].step_time
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predicted.json", "program.json", "calibration.json"}
    monkeypatch.setattr(running, "predict_compiled", refuse)
    assert train.predict_first(plan, programs, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert "no prediction: never measured" in capsys.readouterr().err


ORDER = ("tensor", "data", "fsdp", "stage", "expert", "context")


@pytest.fixture
def unnamed(toy):
    """The toy run without a mesh of its own."""
    return replace(toy(), mesh=None)


def resumed(run, folder, devices, resume=True):
    return starting.continued(run, Options(folder, resume), devices)


def test_a_resumed_run_keeps_the_mesh_of_its_folder_and_its_order(tmp_path, unnamed):
    before = parse_mesh("data=2,tensor=2", ORDER)
    save_run(replace(unnamed, mesh=before), tmp_path / "run.json")
    run, said = resumed(unnamed, tmp_path, 4)
    assert (run.mesh, run.device_order, said) == (before, ORDER, [])


def test_with_other_devices_it_takes_all_as_fsdp_and_says_so_in_one_line(tmp_path, unnamed):
    save_run(replace(unnamed, mesh=parse_mesh("data=2,tensor=2")), tmp_path / "run.json")
    run, said = resumed(unnamed, tmp_path, 8)
    assert run == unnamed
    (line,) = said
    assert "resumed on mesh fsdp=8" in line and "data=2,tensor=2 before" in line


def test_a_folder_whose_mesh_cannot_be_read_is_said_too(tmp_path, unnamed):
    (tmp_path / "run.json").write_text("{")
    assert "not known" in resumed(unnamed, tmp_path, 8)[1][0]


def test_a_mesh_that_is_asked_for_and_a_new_run_are_left_alone(tmp_path, toy, unnamed):
    save_run(replace(unnamed, mesh=parse_mesh("data=2,tensor=2")), tmp_path / "run.json")
    asked = toy(mesh={"fsdp": 4})
    assert resumed(asked, tmp_path, 4) == (asked, [])
    assert resumed(unnamed, tmp_path, 4, resume=False) == (unnamed, [])


def test_a_run_of_another_model_is_not_resumed_and_its_folder_stays_as_it_is(tmp_path, toy):
    (tmp_path / "checkpoints" / "4").mkdir(parents=True)
    save_run(toy(), tmp_path / "run.json")
    larger = replace(toy(), model=replace(toy().model, n_layers=3))
    with pytest.raises(InputError, match="belongs to another run: its model has .* parameters"):
        starting._check_same_model(larger, tmp_path)
    starting._check_same_model(replace(toy(), remat="full"), tmp_path)


def test_frozen_parameters_that_nothing_was_read_into_are_warned_of(tmp_path, toy):
    fresh, frozen = Options(tmp_path), toy(freeze=("embedding/*",))
    (line,) = words.random_base_lines(frozen, fresh)
    assert "stays random" in line and "--init" in line
    for run, options in (
        (toy(), fresh),
        (frozen, replace(fresh, initial=tmp_path)),
        (frozen, replace(fresh, resume=True)),
    ):
        assert words.random_base_lines(run, options) == []


def test_a_step_whose_state_alone_exceeds_the_device_is_refused():
    plan = SimpleNamespace(argument_size_in_bytes=10**15)
    with pytest.raises(InputError, match="state take 1 PB of each device, which has"):
        starting.check_state_fits(SimpleNamespace(memory_analysis=lambda: plan))
    plan.argument_size_in_bytes = 10**6
    starting.check_state_fits(SimpleNamespace(memory_analysis=lambda: plan))


@pytest.mark.parametrize(
    ("mesh", "devices", "words"),
    [(None, 100_000, "global_batch=8"), (None, 3, "fsdp=3"), ("fsdp=4", 100_000, "needs 4")],
)
def test_devices_that_the_run_cannot_use_are_refused_before_they_are_made(
    tmp_path, unnamed, mesh, devices, words
):
    run = replace(unnamed, mesh=mesh and parse_mesh(mesh))
    with pytest.raises(InputError, match=f"--devices {devices}: .*{words}"):
        starting.check_device_count(run, Options(tmp_path), devices)


def test_several_processes_have_more_devices_than_each_is_told(tmp_path, unnamed, monkeypatch):
    run = replace(unnamed, mesh=parse_mesh("fsdp=4"))
    with pytest.raises(InputError, match="needs 4"):
        starting.check_device_count(run, Options(tmp_path), 2)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    starting.check_device_count(run, Options(tmp_path), 2)


def test_a_run_with_restarts_is_given_the_same_words_and_its_worker_trains(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(supervisor, "run_with_restarts", lambda *words, **_: asked.append(words))
    monkeypatch.setattr(supervisor, "die_with_parent", lambda: None)
    monkeypatch.setattr(train_command, "train_here", lambda call, stopped_code: 5)
    words = ["train", "tiny", "--set", "remat=full", "--restarts", "3", "--run-dir", str(tmp_path)]
    main.main(words)
    assert asked == [(words, 3, tmp_path)]
    monkeypatch.setenv(supervisor.BEGAN, "0")
    assert main.main(words) == 5 and len(asked) == 1


def test_a_checkpoint_that_is_not_saved_ends_the_process_whatever_its_threads_do(
    monkeypatch, capfd
):
    """An orderly end would wait for those that still write to a disk that does not answer."""

    def fail(*given, **named):
        raise CheckpointError("checkpoint of step 3 not saved")

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr("scaling.train", fail)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(SystemExit) as ended:
        main.main(["train", "tiny", "--run-dir", "nowhere"])
    assert ended.value.code == 2
    assert capfd.readouterr().err.endswith("error: checkpoint of step 3 not saved\n")


def test_a_peer_that_is_lost_before_the_steps_ends_the_command_without_a_traceback(
    monkeypatch, capfd
):
    def fail(*given, **named):
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer [10.0.0.2]")

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr("scaling.train", fail)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr("jax.process_count", lambda: 2)
    with pytest.raises(SystemExit) as ended:
        main.main(["train", "tiny", "--run-dir", "nowhere"])
    said = capfd.readouterr().err
    assert ended.value.code == supervisor.LOST
    assert "another process of the job has ended" in said and "Traceback" not in said


def test_a_run_stopped_before_its_first_step_is_not_told_to_resume(toy, tmp_path):
    ending = lambda step: str(TrainResult(toy(), tmp_path, step, 0, 0.0, "SIGTERM"))
    assert ending(0).splitlines()[1] == "next: the same command"
    assert ending(4).splitlines()[1] == "next: the same command with --resume"
    assert repr(TrainResult(toy(), tmp_path, 4, 4, 0.5)) == "<trained to step 4, loss 0.5000>"
