"""`scaling train` on stages, context and expert: the same run as on one device, from end to end.

A checkpoint of any of these meshes is resumed on any other.
"""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from scaling.meshes.shape import MeshShape
from scaling.run import Context, Pipeline, Run, run_dict
from scaling.training.data.batches import held_out_batches
from scaling.training.evaluation.scores import row_of, scores
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.trained_model import newest_model, on_mesh, run_of_folder
from scaling.training.weights.naming import layer_order_of, reorder_layers
from tests.harness import MODELS
from tests.scaling.training.fakes import scaling, train

STEPS = 4
RTOL = 1e-4
PLACES = {
    "one": {},
    "1f1b": {"mesh": MeshShape(data=2, stage=2)},
    "interleaved": {
        "mesh": MeshShape(data=2, stage=2),
        "pipeline": Pipeline("interleaved", virtual_stages=2),
    },
    "gpipe": {"mesh": MeshShape(fsdp=2, stage=4), "pipeline": Pipeline("gpipe")},
    "ring": {"mesh": MeshShape(data=2, context=2)},
    "all-gather": {"mesh": MeshShape(data=2, context=2), "context": Context("all-gather")},
}


def losses(folder: Path) -> dict:
    """Training and held-out losses and gradient norms, by step and name."""
    return {
        (record["step"], name): record[name]
        for record in read_metrics(folder)
        for name in ("loss", "held_out_loss", "grad_norm")
        if name in record
    }


@pytest.fixture(scope="module")
def runs(toy) -> dict[str, Run]:
    """The same run of four layers on each mesh."""
    base = toy(microbatches=2, steps=STEPS, eval_every=2)
    base = replace(base, model=replace(base.model, n_layers=4))
    return {name: replace(base, **changes) for name, changes in PLACES.items()}


@pytest.fixture(scope="module")
def on_one_device(runs, prepare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    train(*prepare(runs["one"]), Options(folder))
    return losses(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PLACES if name != "one"])
def test_every_loss_equals_that_of_one_device(runs, prepare, tmp_path, on_one_device, name):
    train(*prepare(runs[name]), Options(tmp_path))
    assert losses(tmp_path) == pytest.approx(on_one_device, rel=RTOL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"),
    [("interleaved", "one"), ("gpipe", "interleaved"), ("interleaved",) * 2, ("ring", "one")],
)
def test_checkpoint_is_resumed_on_another_mesh(runs, prepare, tmp_path, on_one_device, first, then):
    plan, programs = prepare(runs[first])
    halfway = replace(plan.run, train=replace(plan.run.train, steps=STEPS // 2))
    # The schedule of the rate is that of the compiled step, which does all steps.
    train(replace(plan, run=halfway), programs, Options(tmp_path))
    train(*prepare(runs[then]), Options(tmp_path, resume=True))
    assert losses(tmp_path) == pytest.approx(on_one_device, rel=RTOL)
    mesh = MeshShape(fsdp=2, tensor=2)  # whatever the order of layers
    run, batch = on_mesh(run_of_folder(tmp_path), mesh), plan.run.batch
    model, _ = newest_model(run, tmp_path)
    (held_out,) = held_out_batches(plan.source, batch.global_batch, 1)
    rows = (row_of([*inputs, targets[-1]], 1) for inputs, targets in zip(*held_out, strict=True))
    found = -sum(score.log_likelihood for score in scores(model, run, rows)) / batch.tokens
    assert found == pytest.approx(on_one_device[STEPS, "held_out_loss"], rel=RTOL)


def test_rows_of_layer_stacks_are_moved_and_nothing_else(runs):
    """Rows stand for layers: each holds its layer's number."""
    there, here = runs["interleaved"], runs["one"]
    assert layer_order_of(there, 4).tolist() == [0, 2, 1, 3]
    assert layer_order_of(here, 4).tolist() == [0, 1, 2, 3]
    stack = np.asarray(layer_order_of(there, 4), np.float32)[:, None] * np.ones(3, np.float32)
    paths = ("params/layers/norm", "optimizer/0/mu/layers/norm", "params/head_VD")
    with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        arrays = {path: jax.device_put(stack, jax.P(None, None)) for path in paths}
        arrays["optimizer/0/layers/norm/count"] = jax.device_put(np.int32(3), jax.P())
        found = reorder_layers(arrays, run_dict(there), here)
        eight = jax.device_put(layer_order_of(there, 8)[:, None], jax.P(None, None))
        dense = reorder_layers({"params/dense_layers/norm": eight}, run_dict(there), here)
    assert dense["params/dense_layers/norm"][:, 0].tolist() == list(range(8))
    for path in paths[:2]:
        assert np.asarray(found[path])[:, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(np.asarray(found[paths[2]]), stack)


def test_arrays_in_the_same_order_are_not_moved(runs):
    arrays = {"params/layers/norm": object()}
    assert reorder_layers(arrays, run_dict(runs["1f1b"]), runs["gpipe"]) is arrays


@pytest.mark.slow
def test_steps_with_experts_log_the_load_of_every_expert(toy, prepare, tmp_path):
    run = toy({"data": 2, "expert": 2}, steps=2)
    moe = replace(MODELS["deepseek"].moe, routed_scaling=1.0, n_groups=1, groups_per_token=1)
    assert train(*prepare(replace(run, model=replace(run.model, moe=moe))), Options(tmp_path)).step
    lines = read_metrics(tmp_path)[:2]
    for line in lines:
        (load,) = line["expert_load"]  # one layer with experts
        assert len(load) == 8 and sum(load) == pytest.approx(8, rel=1e-5)
        assert line["skew"] == max(load) and line["dropped"] == 0
        assert line["aux_loss"] >= 2.9 and line["z_loss"] > 0  # 3 if even: k
        assert list(line)[:3] == ["step", "loss", "tokens"]


def command(folder: Path, *words: str) -> str:
    """Output of `scaling train ... --run-dir folder/out`, run in the folder."""
    words = ("train", *words, "--run-dir", "out")
    process = scaling(words, {"SCALING_CACHE": str(folder / "cache")}, cwd=folder)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out + err


@pytest.mark.slow
def test_command_says_how_context_shares_out_a_sequence(tmp_path):
    output = command(tmp_path, "tiny", "--mesh", "context=2,data=2", "--devices", "4", "--steps=2")
    line = "context=2: of 4 chunks of 8 tokens device i holds i and 3-i; ring: 1 permute of"
    assert line in output
    assert json.loads((tmp_path / "out/run.json").read_text())["mesh"]["context"] == 2


@pytest.mark.slow
def test_command_resumes_a_pipeline_and_says_what_its_stages_do(tmp_path):
    words = ["tiny", "--mesh", "data=2,stage=2,tensor=2", "--devices", "8"]
    for more in (["--steps", "2"], ["--steps", "4", "--resume"]):
        output = command(tmp_path, *words, *more)
        assert (
            "stage=2: 1 layer(s) on each, schedule 1f1b; 2 iterations for 1 microbatch(es)"
            in output
        )
    assert [r["step"] for r in read_metrics(tmp_path / "out") if "loss" in r] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["expert=2,data=2", "expert=2,tensor=2", "expert=4,fsdp=2"])
def test_command_trains_experts_and_the_loss_falls(mesh: str, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("alpha beta gamma delta " * 2000)
    run = {
        "model": {"preset": "tiny-moe"},
        "batch": {"global_batch": 8, "seq_len": 32},
        "precision": {"compute": "fp32"},
        "train": {"steps": 40, "learning_rate": 0.01, "warmup_steps": 5, "data": str(text)},
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    command(tmp_path, "run.json", "--mesh", mesh, "--devices", "8" if "4" in mesh else "4")
    found = [line["loss"] for line in read_metrics(tmp_path / "out") if "loss" in line]
    assert found[0] > 5 and found[-1] < 1  # 23 characters over and over
