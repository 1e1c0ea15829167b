"""`--set key=value` and `scaling config`."""

import json

import pytest

from scaling.api.runs import apply_settings, load_run
from scaling.cli.main import main
from scaling.meshes.errors import InputError
from scaling.run import run_dict
from scaling.run.recipes import recipe

FSDP_FIRST = ["fsdp", "stage", "data", "expert", "context", "tensor"]


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("batch.global_batch=256", ("batch", "global_batch"), 256),
        ("train.learning_rate=1e-4", ("train", "learning_rate"), 1e-4),
        ("remat=full", ("remat",), "full"),
        ("model.n_layers=4", ("model", "n_layers"), 4),
        ("model.preset=gpt2-124m", ("model", "d_model"), 768),
        ("mesh.fsdp=4", ("mesh", "fsdp"), 4),
        ("mesh=fsdp=4,data=2", ("mesh", "fsdp"), 4),
        ('device_order=["fsdp"]', ("device_order",), FSDP_FIRST),
        ("device_order=fsdp", ("device_order",), FSDP_FIRST),
        ("cluster.name=dgx-h100", ("cluster", "name"), "dgx-h100"),
        ('cluster={"name": "p5", "nodes": 2}', ("cluster", "nodes"), 2),
        ("train.data=a=b", ("train", "data"), "a=b"),
        ("model.tied_embeddings=true", ("model", "tied_embeddings"), True),
    ],
)
def test_a_value_is_replaced(setting, path, value):
    document = run_dict(apply_settings(recipe("tiny"), [setting]))
    for key in path:
        document = document[key]
    assert document == value


def test_values_may_be_given_as_a_mapping():
    run = recipe("tiny")
    assert apply_settings(run, {"batch.seq_len": 64}) == apply_settings(run, ["batch.seq_len=64"])
    assert apply_settings(run, []) == run


def test_a_preset_is_replaced_before_values_of_the_model():
    run = apply_settings(recipe("tiny"), ["model.n_layers=3", "model.preset=gpt2-124m"])
    assert (run.model.n_layers, run.model.d_model) == (3, 768)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["batch.global_bach=8"], ["set", "'global_bach'", "'global_batch'"]),
        (["bach.seq_len=8"], ["set", "'bach'", "'batch'"]),
        (["batch.seq_len=many"], ["set", "seq_len", "expected int", "'many'"]),
        (["remat=ful"], ["set", "'ful'", "'full'"]),
        (["remat=full", "remat=none"], ["'remat'", "given twice"]),
        (["remat"], ["set remat", "key=value"]),
        (["=3"], ["key=value"]),
        (["batch.seq_len.x=3"], ["batch.seq_len is a value"]),
        (["batch=3"], ["batch", "table of keys"]),
        (['train={"steps": 1, "steps": 2}'], ["set train", "given twice"]),
        (["model.preset=tinny"], ["'tinny'", "'tiny'"]),
        (["batch.seq_len=1e30"], ["seq_len"]),
        (["mesh=fdsp=4"], ["'fdsp'", "'fsdp'"]),
        (["device_order=fdsp"], ["'fdsp'", "'fsdp'"]),
    ],
)
def test_a_bad_setting_is_one_message(settings, words):
    with pytest.raises(InputError) as caught:
        load_run("tiny", set=settings)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("command", ["train", "predict", "sharding", "config"])
def test_every_command_that_takes_a_run_takes_settings(command, capsys):
    assert main([command, "tiny", "--set", "batch.global_bach=8"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "'global_batch'" in err


def config(capsys, *words):
    assert main(["config", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_config_prints_a_run_json_that_resolves_to_the_same_run(capsys, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(
        config(capsys, "tiny", "--set", "batch.seq_len=16", "--mesh", "fsdp=2", "--json")
    )
    again = json.loads(config(capsys, path, "--json"))
    assert again == json.loads(path.read_text())
    assert (again["batch"]["seq_len"], again["mesh"]["fsdp"]) == (16, 2)


def origins(text):
    rows = (line.split("#") for line in text.splitlines())
    return {left.split(" = ")[0]: origin.strip() for left, origin in rows}


def test_config_says_where_the_values_of_a_recipe_come_from(capsys):
    found = origins(config(capsys, "tiny", "--set", "remat=full", "--mesh", "fsdp=2"))
    assert found["remat"] == "--set remat" and found["mesh.fsdp"] == "--mesh"
    assert found["batch.global_batch"] == found["train.steps"] == "recipe tiny"
    assert found["model.d_model"] == "preset" and found["optimizer"] == "default"


def test_config_says_where_the_values_of_a_file_come_from(capsys, tmp_path):
    path = tmp_path / "own.json"
    tables = {"model": {"preset": "tiny", "n_layers": 4}, "train": {"steps": 1000}}
    path.write_text(json.dumps({**tables, "batch": {"global_batch": 8, "seq_len": 32}}))
    found = origins(config(capsys, path, "--set", "model.n_heads=2"))
    assert found["model.n_layers"] == found["train.steps"] == found["batch.seq_len"] == str(path)
    assert found["model.n_heads"] == "--set model.n_heads" and found["model.d_model"] == "preset"
    assert found["batch.microbatches"] == found["name"] == "default"


@pytest.mark.parametrize("settings", [3, [3], {3: 4}])
def test_settings_that_are_no_texts_are_bad_input(settings):
    with pytest.raises(InputError, match="--set: expected a text such as"):
        apply_settings(recipe("tiny"), settings)
