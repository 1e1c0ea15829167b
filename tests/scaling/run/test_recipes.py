"""Recipes: the names and batches that others rely on, all defaults in one golden file, and every
way to name a run."""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from scaling import predict
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig, with_positions
from scaling.models.presets import preset, preset_names
from scaling.run import Batch, Run, read_run, run_dict, save_run
from scaling.run.parallelism.rules import rules_for
from scaling.run.recipes import (
    example,
    file_of,
    recipe,
    resolve,
    with_dividing_microbatches,
    with_steps,
)

NAMES = (  # a contract: scripts outside the project use these
    *("tiny", "demo", "gpt2-124m", "gpt2-1.5b", "gpt-305m", "gpt3-175b"),
    *("llama3-1b", "llama3-8b", "llama3-70b", "llama3-405b", "qwen3-0.6b", "qwen3-8b"),
    *("mixtral-8x7b", "deepseek-v3"),
)
GOLDEN = Path(__file__).parents[2] / "golden" / "recipes.json"
REGENERATE = "python tests/scaling/run/test_recipes.py"


# --- golden: a run of defaults in full, and what each recipe changes in it ------------------------


def flat(data, prefix=""):
    """Nested dictionaries as one, with keys such as "train/steps"."""
    out = {}
    for key, value in data.items():
        inner = flat(value, f"{prefix}{key}/") if isinstance(value, dict) else None
        out |= inner or {prefix + key: value}
    return out


def defaults():
    """Every default of run.json, flat; sizes that have none are 1."""
    sizes = {f.name: 1 for f in fields(ModelConfig) if f.default is f.default_factory}
    model = ModelConfig(**sizes, head_dim=2)  # 2: rotary positions need pairs
    return flat(run_dict(Run("defaults", model, Batch(1, 1))))


def golden():
    """{"defaults": all of them, recipe: only what differs}."""
    base = defaults()
    runs = {name: flat(run_dict(recipe(name))) for name in preset_names()}
    absent = object()
    return {"defaults": base} | {
        name: {k: v for k, v in run.items() if v != base.get(k, absent)}
        for name, run in runs.items()
    }


def as_text(data):
    """The golden file: a line per default, then a line per recipe."""
    shown = json.dumps(data.pop("defaults"), indent=1)
    lines = [f'"defaults": {shown}', *(f'"{k}": {json.dumps(v)}' for k, v in data.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("name", ["defaults", *preset_names()])
def test_a_recipe_is_what_it_was(name):
    expected = json.loads(GOLDEN.read_text())
    assert json.loads(json.dumps(golden()[name])) == expected.get(name), (
        f"the recipe {name!r} changed; if that is meant, run: {REGENERATE}"
    )


def test_no_recipe_went_missing():
    assert set(json.loads(GOLDEN.read_text())) == {"defaults", *preset_names()}, REGENERATE


# --- names and batches --------------------------------------------------------------------------


def test_every_name_of_the_contract_is_a_recipe():
    assert set(NAMES) <= set(preset_names())


def test_every_model_is_a_recipe_of_its_own_name():
    assert [recipe(name).name for name in preset_names()] == list(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_every_recipe_survives_being_written_down(name):
    run = recipe(name)
    assert read_run(json.loads(json.dumps(run_dict(run)))) == run
    assert run.mesh is None and run.software == "jax"


@pytest.mark.parametrize("name", preset_names())
def test_a_recipe_has_the_model_of_its_preset_and_so_of_its_config_json(name):
    """With `--init` of a published checkpoint it trains that function: no token is dropped."""
    model = recipe(name).model
    assert model == with_positions(preset(name), recipe(name).batch.seq_len)
    assert (
        model.moe is None or model.moe.capacity_factor is model.moe.device_capacity_factor is None
    )


@pytest.mark.parametrize("name", ["llama3-1b", "llama3-405b"])
def test_llama3_steps_are_four_million_tokens_of_8192(name):
    batch = recipe(name).batch
    assert batch.seq_len == 8192
    assert batch.tokens == pytest.approx(4e6, rel=0.05)  # arXiv 2407.21783, table 4


@pytest.mark.parametrize("name", preset_names())
def test_the_mesh_of_every_example_takes_the_recipe(name):
    run, place = recipe(name), example(name)
    rules_for(run, place.mesh)
    cluster = catalog.load(place.cluster, place.nodes)
    assert place.mesh.devices == cluster.devices or name in ("tiny", "tiny-moe", "demo")


@pytest.mark.deviceless
@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names())
def test_the_defaults_of_every_recipe_fit_its_example(name):
    place = example(name)
    prediction = predict(name, cluster=place.cluster, nodes=place.nodes, mesh=place.mesh)
    assert prediction.memory.fits is True
    assert not [text for text in prediction.warnings if "microbatches" in text]


def test_default_microbatches_are_lowered_until_they_divide_the_batch():
    run = recipe("llama3-8b")
    lowered, (note,) = with_dividing_microbatches(run, MeshShape(data=8, fsdp=16))
    assert (run.batch.microbatches, lowered.batch.microbatches) == (8, 4)
    assert lowered == replace(run, batch=replace(run.batch, microbatches=4))
    assert "batch.microbatches is 4 instead of the recipe's 8" in note and "4 sequence(s)" in note
    assert with_dividing_microbatches(run, MeshShape(fsdp=64)) == (run, [])


@pytest.mark.parametrize(("microbatches", "mesh"), [(16, {"fsdp": 64}), (8, {"fsdp": 48})])
def test_microbatches_of_the_user_and_other_misfits_are_left_to_the_checks(microbatches, mesh):
    run = recipe("llama3-8b")
    run = replace(run, batch=replace(run.batch, microbatches=microbatches))
    shape = MeshShape(**mesh)
    assert with_dividing_microbatches(run, shape) == (run, [])
    with pytest.raises(InputError, match="divisible"):
        rules_for(run, shape)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("tini", "tiny"), ("lama3-8b", "llama3-8b"), ("gpt3-157b", "gpt3-175b"), ("Demo", "demo")],
)
def test_an_unknown_preset_names_the_nearest(written, meant):
    with pytest.raises(InputError, match=f"recipe '{written}'.*; did you mean '{meant}'"):
        resolve(written)


def test_other_steps_change_nothing_else():
    run = recipe("demo")
    assert with_steps(run, None) == run
    changed = with_steps(run, 7)
    assert changed.train.steps == 7
    assert with_steps(changed, run.train.steps) == run


# --- every way to name a run --------------------------------------------------------------------


@pytest.fixture
def python_file(tmp_path):
    """Writes a Python file; what loading it did to the known modules is undone afterwards."""
    before = dict(sys.modules)

    def write(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    yield write
    for name in [n for n, module in sys.modules.items() if before.get(n) is not module]:
        del sys.modules[name]
    sys.modules.update(before)


def refused(text):
    """What resolving `text` is refused with."""
    with pytest.raises(InputError) as raised:
        resolve(text)
    return str(raised.value)


def test_a_run_json_and_its_folder_are_runs(tmp_path):
    run = with_steps(recipe("demo"), 3)
    save_run(run, tmp_path / "run.json")
    assert resolve(str(tmp_path / "run.json")) == run
    assert resolve(str(tmp_path)) == run


LLAMA = {
    **{"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 256},
}


def test_a_hugging_face_config_and_its_folder_are_runs(tmp_path):
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    run = resolve(str(folder))
    assert (run.name, run.model.d_model, run.batch.seq_len) == ("my-llama", 64, 2048)
    assert resolve(str(folder / "config.json")) == run
    assert file_of(str(folder)) == folder / "config.json"
    (folder / "run.json").write_text(json.dumps(run_dict(recipe("tiny"))))
    assert resolve(str(folder)) == recipe("tiny")


def test_a_recipe_s_name_means_the_recipe_though_a_run_folder_is_called_so(tmp_path, monkeypatch):
    (tmp_path / "tiny").mkdir()
    save_run(recipe("demo"), tmp_path / "tiny" / "run.json")
    monkeypatch.chdir(tmp_path)
    assert resolve("tiny") == recipe("tiny")
    assert resolve("./tiny") == recipe("demo")


def test_a_function_of_a_file_is_a_run(python_file):
    file = python_file(
        "from dataclasses import dataclass, replace\n"
        "from scaling.run.recipes import tiny\n"
        "@dataclass\n"
        "class Mine:\n"
        "    steps: 'int' = 1\n"
        "def longer():\n"
        "    return replace(tiny(), name='longer')\n"
    )
    assert resolve(f"{file}:longer").name == "longer"


def test_a_file_called_like_a_package_does_not_take_its_place(python_file):
    file = python_file("from scaling.run.recipes import tiny as mine\n", "json.py")
    assert resolve(f"{file}:mine") == recipe("tiny")
    assert sys.modules["json"] is json


def test_a_missing_file_or_function_is_named(python_file):
    assert "there is no file nowhere.py" in refused("nowhere.py:run")
    file = python_file("def large(): ...\ndef _hidden(): ...\nname = 'x'\n")
    said = refused(f"{file}:larg")
    assert "no function 'larg'; did you mean 'large'" in said
    assert "_hidden" not in said
    assert "no function is named; write " in refused(f"{file}:")
    assert f"{file}:FUNCTION" in refused(f"{file}")
    assert "no function 'name'" in refused(f"{file}:name")


@pytest.mark.parametrize(
    ("value", "kind"), [("3", "an int"), ("None", "nothing"), ("{}", "a dict")]
)
def test_a_function_that_returns_something_else_is_refused(python_file, value, kind):
    file = python_file(f"def run():\n    return {value}\n")
    assert f"returned {kind}; return a scaling.Run" in refused(f"{file}:run")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def run(:\n", ["SyntaxError", "line 1"]),
        ("import no_such_package\n", ["ModuleNotFoundError", "no_such_package"]),
        ("x = 1\n1 / 0\n", ["ZeroDivisionError", "line 2"]),
        ("def run():\n    return 1 / 0\n", ["ZeroDivisionError", "line 2"]),
        ("def run(size):\n    return size\n", ["TypeError", "size"]),
    ],
    ids=["syntax", "import", "top level", "inside", "arguments"],
)
def test_a_file_that_fails_says_which_line_in_one_message(python_file, text, words):
    file = python_file(text)
    said = refused(f"{file}:run")
    assert "mine.py" in said and all(word in said for word in words)


def test_bad_input_inside_the_function_is_passed_on_as_it_is(python_file):
    file = python_file(
        "from scaling.meshes.shape import parse_mesh\nrun = lambda: parse_mesh('dta=2')\n"
    )
    assert refused(f"{file}:run").startswith("--mesh: unknown axis 'dta'; did you mean 'data'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runs.jsonl", "predicted"),
        ("none.json", "cannot read none.json"),
        ("no/such/folder", "unknown recipe"),
        ("", "unknown recipe"),
        ("a\0b", "unknown recipe"),
        ("x" * 5000, "unknown recipe"),
    ],
    ids=["jsonl", "no file", "no folder", "empty", "nul", "long"],
)
def test_what_names_no_run_is_refused(text, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in refused(text)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(as_text(golden()))
