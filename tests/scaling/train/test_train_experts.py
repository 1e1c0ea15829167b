"""A mixture of experts trained from end to end over `expert`: its log, checkpoint and loss."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.models.config import Moe
from scaling.run import Run
from scaling.train.loop import train
from scaling.train.monitor.metrics import read_metrics
from scaling.train.run_folder import Options

DEEPSEEK = Moe(
    8,
    2,
    d_ff_expert=16,
    n_shared_experts=1,
    first_dense_layers=1,
    gate="sigmoid",
    selection_bias=True,
    bias_update_rate=0.01,
    aux_loss=0.01,
    z_loss=0.001,
)


def with_experts(run: Run) -> Run:
    return replace(run, model=replace(run.model, moe=DEEPSEEK))


@pytest.mark.slow
def test_two_steps_on_two_axes_log_the_load_of_every_expert(toy, prepare, tmp_path: Path) -> None:
    plan, programs = prepare(with_experts(toy({"data": 2, "expert": 2}, steps=2)))
    outcome = train(plan, programs, Options(tmp_path))
    assert outcome.step == 2
    first, second = read_metrics(tmp_path)[:2]
    for line in (first, second):
        (load,) = line["expert_load"]  # one layer with experts
        assert len(load) == 8 and sum(load) == pytest.approx(8, rel=1e-5)
        assert line["skew"] == max(load) and line["dropped"] == 0
        assert line["aux_loss"] >= 1.9 and line["z_loss"] > 0  # 2 if even: k
        assert list(line)[:3] == ["step", "loss", "tokens"]


@pytest.mark.slow
def test_a_dense_model_logs_nothing_of_experts(toy, prepare, tmp_path: Path) -> None:
    plan, programs = prepare(toy({"data": 2}, steps=1))
    train(plan, programs, Options(tmp_path))
    assert not {"expert_load", "skew", "aux_loss"} & set(read_metrics(tmp_path)[0])


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["expert=2,data=2", "expert=2,tensor=2", "expert=4,fsdp=2"])
def test_the_command_line_trains_experts_and_the_loss_falls(mesh: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("alpha beta gamma delta " * 2000)
    command = [sys.executable, "-m", "scaling", "train", "run.json", "--mesh", mesh]
    run = {
        "model": {"preset": "tiny-moe"},
        "batch": {"global_batch": 8, "seq_len": 32},
        "precision": {"compute": "fp32"},
        "train": {"steps": 40, "learning_rate": 0.01, "warmup_steps": 5, "data": str(text)},
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    devices = "4" if "4" not in mesh else "8"
    command += ["--devices", devices, "--run-dir", "out"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    losses = [line["loss"] for line in read_metrics(tmp_path / "out") if "loss" in line]
    assert losses[0] > 5 and losses[-1] < 1  # 23 characters over and over
