"""`scaling train`: what it leaves in a run folder beside what the loop writes."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import hypothesis
import pytest
from hypothesis import strategies as st

from scaling.api import train
from scaling.cli import main
from scaling.cli.main import parse
from scaling.cli.options import KeyValues, Switch, Text, command_line
from scaling.cli.train import TrainCommand
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import profile_of
from scaling.run import save_run
from scaling.simulate.step import price
from scaling.simulate.summary import summarize
from scaling.train import running
from scaling.train.run_folder import Options

H100 = catalog.load("dgx-h100")


@pytest.fixture
def made(hand_step):
    priced = price(hand_step, H100, profile_of(H100.accelerator))
    return priced, summarize(priced)


def test_what_an_earlier_run_predicted_goes_where_there_is_no_prediction(
    tmp_path, toy, made, monkeypatch, capsys
):
    plan, programs = SimpleNamespace(run=toy(), mesh=None), SimpleNamespace(step=None)
    monkeypatch.setattr(running, "try_to_predict", lambda *_: made)
    assert train.predict_first(plan, programs, tmp_path) == made[1].step_time
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predicted.json", "program.json", "calibration.json"}
    monkeypatch.setattr(running, "try_to_predict", lambda *_: "no prediction: never measured")
    assert train.predict_first(plan, programs, tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    assert "no prediction: never measured" in capsys.readouterr().err


ORDER = ("tensor", "data", "fsdp", "stage", "expert", "context")


@pytest.fixture
def unnamed(toy):
    """The toy run without a mesh of its own."""
    return replace(toy(), mesh=None)


def resumed(run, folder, devices, resume=True):
    return train.continued(run, Options(folder, resume), devices)


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
        train.check_device_count(run, Options(tmp_path), devices)


def test_several_processes_have_more_devices_than_each_is_told(tmp_path, unnamed, monkeypatch):
    run = replace(unnamed, mesh=parse_mesh("fsdp=4"))
    with pytest.raises(InputError, match="needs 4"):
        train.check_device_count(run, Options(tmp_path), 2)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    train.check_device_count(run, Options(tmp_path), 2)


# The command line of the process that trains, where another is beside it

NAMES = st.text("abc/=:", min_size=1, max_size=6).map("x".__add__)
VALUES = {  # type of an option -> values that are not its default
    str | None: NAMES,
    int | None: st.integers(-1, 99),
    int: st.integers(1, 125),
    Path | None: NAMES.map(Path),
    bool: st.just(True),
    tuple[str, ...]: st.lists(NAMES, min_size=1, max_size=2).map(tuple),
}


def options_of(command):
    """Strategy of the command with any of its options."""
    hints = get_type_hints(command)
    options = [field for field in dataclasses.fields(command) if field.name != "run"]
    values = {f.name: st.just(f.default) | VALUES[hints[f.name]] for f in options}
    return st.builds(command, run=NAMES, **values)


@dataclasses.dataclass(frozen=True)
class WithNewOptions(TrainCommand):
    """The command with options that a later version may have."""

    new_text: Text = None
    new_switch: Switch = False
    new_list: KeyValues = ()


@pytest.mark.parametrize("command", [TrainCommand, WithNewOptions])
@hypothesis.given(data=st.data())
def test_a_restarted_run_gets_every_option(command, data):
    given = data.draw(options_of(command))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "_class", lambda name: command)
        again = parse(["train", *command_line(given, "restarts")])
    assert again == dataclasses.replace(given, restarts=0)
