"""`scaling train` with sequences cut over `context`: the same run as without."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from scaling.run import Context
from scaling.train.loop import train
from scaling.train.monitor.metrics import read_metrics
from scaling.train.run_folder import Options

STEPS = 4
RTOL = 1e-4


def losses(folder) -> dict:
    """Losses of training and held-out ones, by step and name."""
    return {
        (record["step"], name): record[name]
        for record in read_metrics(folder)
        for name in ("loss", "held_out_loss", "grad_norm")
        if name in record
    }


@pytest.fixture(scope="module")
def on_one_device(toy, prepare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    train(*prepare(toy(steps=STEPS, eval_every=2)), Options(folder))
    return losses(folder)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ring", "all-gather"])
def test_every_loss_equals_that_of_one_device(toy, prepare, tmp_path, on_one_device, method):
    run = toy(mesh={"context": 2, "data": 2}, steps=STEPS, eval_every=2)
    train(*prepare(replace(run, context=Context(method))), Options(tmp_path))
    assert losses(tmp_path) == pytest.approx(on_one_device, rel=RTOL)


@pytest.mark.slow
def test_a_checkpoint_goes_on_without_context(toy, prepare, tmp_path, on_one_device):
    long = prepare(toy(mesh={"context": 2, "data": 2}, steps=2, eval_every=2))
    train(*long, Options(tmp_path))
    train(*prepare(toy(steps=STEPS, eval_every=2)), Options(tmp_path, resume=True))
    # The learning rate falls towards the last step, so steps of the shorter run differ a little.
    found = losses(tmp_path)
    assert found.keys() == on_one_device.keys()
    assert found[1, "loss"] == pytest.approx(on_one_device[1, "loss"], rel=RTOL)
    assert found[STEPS, "loss"] < found[1, "loss"]


@pytest.mark.slow
def test_the_command_trains_on_context_2_data_2_and_says_how_sequences_lie(tmp_path):
    folder = tmp_path / "run"
    words = ["train", "tiny", "--mesh", "context=2,data=2", "--devices", "4", "--steps", "2"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "SCALING_CACHE": str(tmp_path / "cache")}
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    program = "import sys; from scaling.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *words, "--run-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "context=2: of 4 chunks of 8 tokens device i holds i and 3-i; ring: 1 permute of" in said
    assert json.loads((folder / "run.json").read_text())["mesh"]["context"] == 2
    assert [record["step"] for record in read_metrics(folder) if "loss" in record] == [1, 2]
