"""`scaling train` in stages: the same run as without, whose checkpoints go on on any mesh."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from scaling.meshes.shape import MeshShape
from scaling.run import Pipeline, Run, run_dict
from scaling.train.checkpoint.layer_order import layer_order_of, reorder_layers
from scaling.train.data.batches import held_out_batches
from scaling.train.loop import train
from scaling.train.monitor.metrics import read_metrics
from scaling.train.run_folder import Options
from scaling.train.sample import load_model
from scaling.train.step import loss

STEPS = 4
RTOL = 1e-4


def in_stages(run: Run, mesh: MeshShape, pipeline: Pipeline, layers: int = 4) -> Run:
    """The run with more layers, on another mesh."""
    return replace(run, model=replace(run.model, n_layers=layers), mesh=mesh, pipeline=pipeline)


def losses(folder) -> dict:
    """Losses of training and held-out ones, by step and name."""
    return {
        (record["step"], name): record[name]
        for record in read_metrics(folder)
        for name in ("loss", "held_out_loss", "grad_norm")
        if name in record
    }


@pytest.fixture(scope="module")
def toys(toy):
    """The same run without stages, and in several pipelines."""
    base = toy(microbatches=2, steps=STEPS, eval_every=2)
    return {
        "one": in_stages(base, MeshShape(), Pipeline()),
        "1f1b": in_stages(base, MeshShape(data=2, stage=2), Pipeline("1f1b")),
        "circular": in_stages(base, MeshShape(data=2, stage=2), Pipeline("circular", 2)),
        "fsdp": in_stages(base, MeshShape(fsdp=2, stage=4), Pipeline("gpipe")),
    }


@pytest.fixture(scope="module")
def on_one_device(toys, prepare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    train(*prepare(toys["one"]), Options(folder))
    return losses(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1f1b", "circular", "fsdp"])
def test_every_loss_equals_that_of_one_device(toys, prepare, tmp_path, on_one_device, name):
    train(*prepare(toys[name]), Options(tmp_path))
    assert losses(tmp_path) == pytest.approx(on_one_device, rel=RTOL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"), [("circular", "one"), ("fsdp", "circular"), ("circular", "circular")]
)
def test_a_checkpoint_goes_on_in_another_pipeline(
    toys, prepare, tmp_path, on_one_device, first, then
):
    plan, programs = prepare(toys[first])
    halfway = replace(plan.run, train=replace(plan.run.train, steps=STEPS // 2))
    # The schedule of the rate is that of the compiled step, which does all steps.
    train(replace(plan, run=halfway), programs, Options(tmp_path))
    train(*prepare(toys[then]), Options(tmp_path, resume=True))
    assert losses(tmp_path) == pytest.approx(on_one_device, rel=RTOL)


@pytest.mark.slow
def test_a_checkpoint_of_a_circular_pipeline_is_read_on_one_device(toys, prepare, tmp_path):
    plan, programs = prepare(toys["circular"])
    train(plan, programs, Options(tmp_path))
    _, model = load_model(tmp_path)
    batch, sequences = plan.run.batch, plan.run.batch.global_batch
    held_out = held_out_batches(plan.source, sequences, batch.seq_len, 1)
    said = [r["held_out_loss"] for r in read_metrics(tmp_path) if "held_out_loss" in r][-1]
    with jax.set_mesh(jax.tree.leaves(model)[0].sharding.mesh):
        assert float(loss(model, *held_out[0])) == pytest.approx(said, rel=RTOL)


def test_rows_of_a_stack_are_moved_and_nothing_else(toys):
    """Rows stand for layers: each holds its layer's number."""
    there, here = toys["circular"], toys["one"]
    assert layer_order_of(there).tolist() == [0, 2, 1, 3]
    assert layer_order_of(here).tolist() == [0, 1, 2, 3]
    stack = np.asarray(layer_order_of(there), np.float32)[:, None] * np.ones(3, np.float32)
    with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        arrays = {
            "params/layers/norm": jax.device_put(stack, jax.P(None, None)),
            "optimizer/0/mu/layers/norm": jax.device_put(stack, jax.P(None, None)),
            "params/head_VD": jax.device_put(stack, jax.P(None, None)),
        }
        kept = np.asarray(arrays["params/head_VD"])
        found = reorder_layers(arrays, run_dict(there), here)
    for name in ("params/layers/norm", "optimizer/0/mu/layers/norm"):
        assert np.asarray(found[name])[:, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(np.asarray(found["params/head_VD"]), kept)


def test_arrays_in_the_same_order_are_left_alone(toys):
    arrays = {"params/layers/norm": object()}
    assert reorder_layers(arrays, run_dict(toys["1f1b"]), toys["fsdp"]) is arrays


@pytest.mark.slow
def test_the_command_trains_resumes_and_says_what_the_stages_do(tmp_path):
    folder = tmp_path / "run"
    words = ["train", "tiny", "--mesh", "data=2,stage=2,tensor=2", "--devices", "8"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "SCALING_CACHE": str(tmp_path / "cache")}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    program = "import sys; from scaling.cli.main import main; sys.exit(main(sys.argv[1:]))"
    for more in (["--steps", "2"], ["--steps", "4", "--resume"]):
        command = [sys.executable, "-c", program, *words, "--run-dir", str(folder), *more]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        said = done.stdout + done.stderr
        assert "stage=2: 1 layer(s) on each, schedule 1f1b; 2 ticks for 1 microbatch(es)" in said
    assert json.loads((folder / "run.json").read_text())["mesh"]["stage"] == 2
    assert [r["step"] for r in read_metrics(folder) if "loss" in r] == [1, 2, 3, 4]
