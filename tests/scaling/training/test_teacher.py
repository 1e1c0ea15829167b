"""A teacher's folder: refused before any device work where it does not do, not needed to resume."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from scaling.cli import main as cli
from scaling.meshes.errors import InputError
from scaling.run import Loss, load_run, run_dict, save_run
from scaling.training.run_folder.folder import Options
from scaling.training.starting import options_of
from tests.scaling.training.fakes import train


@pytest.fixture(scope="module")
def teacher(toy, prepare, tmp_path_factory):
    """The folder of a run of one step."""
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    train(*prepare(toy(mesh={"fsdp": 8}, steps=1)), Options(folder))
    return folder


def taught_by(run, folder):
    loss = Loss("distillation", teacher=str(folder))
    return replace(run, train=replace(run.train, loss=loss))


def without_checkpoint(folder):
    shutil.rmtree(folder / "checkpoints")


def without_description(folder):
    (folder / "run.json").unlink()


def of_other_words(folder):
    run = load_run(folder / "run.json")
    save_run(replace(run, model=replace(run.model, vocab_size=300)), folder / "run.json")


def of_another_shape(folder):
    run = load_run(folder / "run.json")
    save_run(replace(run, model=replace(run.model, d_ff=96)), folder / "run.json")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "train.loss.teacher: unknown recipe"),
        (without_description, "train.loss.teacher: unknown recipe"),
        (without_checkpoint, "has no finished checkpoint; train it first"),
        (of_other_words, "a vocabulary of 300 tokens and the model one of 256"),
        (of_another_shape, r"are of another model \(.* parameters\) than its description"),
    ],
)
def test_a_bad_teacher_is_refused_before_any_device_work(
    toy, teacher, tmp_path, spoil, message, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("devices", "local_devices", "process_index", "process_count"):
        monkeypatch.setattr(jax, name, lambda *_: pytest.fail("asked for devices"))
    copy = shutil.copytree(teacher, Path("teacher"))
    options = tmp_path / "run", False, None, None, (False, False)
    options_of(taught_by(toy(), copy), *options)
    spoil(copy)
    with pytest.raises(InputError, match=message):
        options_of(taught_by(toy(), copy), *options)


def test_a_run_goes_on_and_is_priced_when_its_teacher_has_moved(
    toy, teacher, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("scaling.compile.options.use_compilation_cache", lambda: None)
    copy, folder = shutil.copytree(teacher, tmp_path / "teacher"), tmp_path / "run"
    run = taught_by(toy(mesh={"fsdp": 8}), copy)
    run = replace(run, model=replace(run.model, n_layers=1))
    (tmp_path / "run.json").write_text(json.dumps(run_dict(run)))
    command = ["train", str(tmp_path / "run.json"), "--run-dir", str(folder), "--steps"]
    assert cli.main([*command, "1"]) == 0
    saved = load_run(folder / "run.json")
    assert saved.train.loss.teacher_model == toy().model
    assert saved.sharding.zero_stage is None  # a copy on another mesh has its own default
    copy.rename(tmp_path / "moved")
    assert cli.main([*command, "2", "--resume"]) == 0
    assert "trained to step 2" in capsys.readouterr().out
    words = ["predict", str(folder), "--cluster", "dgx-h100", "--source", "analytic"]
    assert cli.main(words) == 0
    of_another_shape(tmp_path / "moved")
    (tmp_path / "moved").rename(copy)
    assert cli.main([*command, "3", "--resume"]) == 2
    assert "train.loss.teacher has another shape" in capsys.readouterr().err
