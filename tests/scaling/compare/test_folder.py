"""What a comparison reads from a run folder, and what it says where something is missing."""

import json

import pytest

from meshes import catalog
from meshes.errors import InputError
from scaling.compare.folder import read_folder, write_prediction
from scaling.cost.profile_file import profile_of
from scaling.predict import predict
from scaling.prediction import prediction_dict
from scaling.price import price
from scaling.run import save_run

H100 = catalog.load("dgx-h100")


@pytest.fixture
def priced(hand_step):
    return price(hand_step, H100, profile_of(H100.accelerator))


@pytest.fixture
def folder(tmp_path, priced, toy):
    save_run(toy(mesh={"fsdp": 4, "tensor": 2}), tmp_path / "run.json")
    write_prediction(tmp_path, priced, predict(priced))
    (tmp_path / "measured.json").write_text('{"step_time": {}}')
    return tmp_path


def test_everything_comes_back(folder, priced, toy):
    found = read_folder(folder)
    assert found.run == toy(mesh={"fsdp": 4, "tensor": 2})
    assert found.program == priced.program
    assert found.profile == priced.profile
    assert found.measured == {"step_time": {}}
    assert found.recording is None
    expected = prediction_dict(predict(priced))
    assert {k: found.prediction[k] for k in expected} == expected
    assert found.prediction["cluster"] == {"name": "dgx-h100", "nodes": 1, "gpus_per_node": 8}


def test_a_profile_folder_is_the_recording(folder):
    (folder / "profile").mkdir()
    assert read_folder(folder).recording == folder / "profile"


def test_program_and_calibration_may_be_missing(folder):
    (folder / "program.json").unlink()
    (folder / "calibration.json").unlink()
    found = read_folder(folder)
    assert found.program is found.profile is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("run.json", "is no run folder: it has no run.json"),
        ("measured.json", "has no measured.json: the run has not finished a step"),
        ("predicted.json", "has no predicted.json: .* run `scaling calibrate --quick` once"),
    ],
)
def test_what_is_missing_is_said_with_the_fix(folder, name, words):
    (folder / name).unlink()
    with pytest.raises(InputError, match=words):
        read_folder(folder)


def test_a_run_that_never_ran_lacks_its_measurement_first(folder):
    (folder / "measured.json").unlink()
    (folder / "predicted.json").unlink()
    with pytest.raises(InputError, match="has no measured.json"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["run.json", "measured.json", "predicted.json", "program.json"])
def test_a_file_that_is_cut_short_is_named(folder, name):
    text = (folder / name).read_text()
    (folder / name).write_text(text[: len(text) // 2])
    with pytest.raises(InputError, match=name):
        read_folder(folder)


@pytest.mark.parametrize("name", ["measured.json", "predicted.json"])
def test_a_file_of_something_else_is_refused(folder, name):
    (folder / name).write_text(json.dumps([1, 2]))
    with pytest.raises(InputError, match=f"{name}: expected a table of keys"):
        read_folder(folder)


def test_a_folder_that_is_not_there_is_no_run_folder(tmp_path):
    with pytest.raises(InputError, match="is no run folder"):
        read_folder(tmp_path / "nowhere")
