"""`scaling train`: what it leaves in a run folder beside what the loop writes."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
from hypothesis import strategies as st

from scaling.cli import main as cli
from scaling.cli import train
from scaling.cli.train import TrainArguments
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import profile_of
from scaling.run import save_run
from scaling.simulate.step import price
from scaling.simulate.summary import summarize
from scaling.train.monitor import predicted

H100 = catalog.load("dgx-h100")


@pytest.fixture
def made(hand_step):
    priced = price(hand_step, H100, profile_of(H100.accelerator))
    return priced, summarize(priced)


def test_what_an_earlier_run_predicted_goes_where_there_is_no_prediction(
    tmp_path, toy, made, monkeypatch, capsys
):
    plan = SimpleNamespace(run=toy())
    monkeypatch.setattr(predicted, "try_to_predict", lambda *_: made)
    assert train._predict(plan, None, tmp_path) == made[1].step_time
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predicted.json", "program.json", "calibration.json"}
    monkeypatch.setattr(predicted, "try_to_predict", lambda *_: "no prediction: never measured")
    assert train._predict(plan, None, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert "no prediction: never measured" in capsys.readouterr().err


ORDER = ("tensor", "data", "fsdp", "stage", "expert", "context")


@pytest.fixture
def unnamed(toy):
    """The toy run without a mesh of its own."""
    return replace(toy(), mesh=None)


def resumed(run, folder, devices, resume=True):
    return train._continued(run, TrainArguments("toy", resume=resume), folder, devices)


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


@pytest.mark.parametrize(
    ("mesh", "devices", "words"),
    [(None, 100_000, "global_batch=8"), (None, 3, "fsdp=3"), ("fsdp=4", 100_000, "needs 4")],
)
def test_devices_that_the_run_cannot_use_are_refused_before_they_are_made(
    tmp_path, unnamed, mesh, devices, words
):
    run = replace(unnamed, mesh=mesh and parse_mesh(mesh))
    with pytest.raises(InputError, match=f"--devices {devices}: .*{words}"):
        train._check_asked(run, TrainArguments("toy", devices=devices), tmp_path)


def test_several_processes_have_more_devices_than_each_is_told(tmp_path, unnamed, monkeypatch):
    run = replace(unnamed, mesh=parse_mesh("fsdp=4"))
    given = TrainArguments("toy", devices=2)
    with pytest.raises(InputError, match="needs 4"):
        train._check_asked(run, given, tmp_path)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    train._check_asked(run, given, tmp_path)


# The command line of the process that trains, where another is beside it

NAMES = st.text("abc/=:", min_size=1, max_size=6).map("x".__add__)
GIVEN = st.builds(
    TrainArguments,
    run=NAMES,
    mesh=st.none() | NAMES,
    steps=st.none() | st.integers(0, 9**9),
    run_dir=st.none() | NAMES.map(Path),
    resume=st.booleans(),
    devices=st.none() | st.integers(-1, 99),
    record_profile=st.none() | NAMES,
    restarts=st.just(0),
    sinks=st.sampled_from([(), ("tensorboard",), ("wandb",), ("tensorboard", "wandb")]),
    stopped_code=st.integers(0, 125),
    init=st.none() | NAMES.map(Path),
)


def read_back(given):
    """What the command line makes of the words of another."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "train_command", lambda again: found.append(again) or 0)
        assert cli.main(train._words(given)) == 0
    return found[0]


@hypothesis.given(GIVEN)
def test_the_process_that_trains_is_given_all_that_the_user_typed(given):
    assert read_back(given) == given


def test_every_option_is_tried_above():
    fields = {field.name for field in dataclasses.fields(TrainArguments)}
    tried = TrainArguments("x", *["a", 1, Path("a"), True, 2, "1:2", 0, ("wandb",), 3, Path("b")])
    default = TrainArguments("y")
    assert {f for f in fields if getattr(tried, f) != getattr(default, f)} == fields - {"restarts"}
    assert read_back(tried) == tried
    assert read_back(dataclasses.replace(tried, restarts=5)) == tried  # for the one beside it
