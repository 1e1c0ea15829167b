"""The demo ends with its plots and the next command, whatever this machine can compile for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from experiments import demo

ROOT = Path(__file__).resolve().parents[2]
LINES = [{"step": step, "loss": 5.0 / step} for step in range(1, 5)]


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Runs the demo with parts that note their words: played(failing="sample", elsewhere=2)."""

    def play(failing="", elsewhere=0):
        folder, said = tmp_path / "demo", []

        def part(words):
            said.append(words[0])
            folder.mkdir(exist_ok=True)
            lines = [*LINES, {"step": 4, "held_out_loss": 1.5}]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
            return 2 if words[0] == failing else 0

        def run(words):
            said.append(words[3])
            return SimpleNamespace(returncode=elsewhere)

        monkeypatch.setattr(demo, "scaling", part)
        monkeypatch.setattr(demo, "_calibrate_once", lambda: None)
        monkeypatch.setattr(demo, "_mesh", lambda: ["--mesh", "fsdp=8"])
        monkeypatch.setattr(demo, "subprocess", SimpleNamespace(run=run))
        monkeypatch.setattr(sys, "argv", ["demo", "--run-dir", str(folder)])
        return demo.main(), said, folder

    return play


def test_the_parts_come_in_order_and_end_with_plots_and_the_next_command(played, capsys):
    code, said, folder = played()
    assert (code, said) == (0, ["train", "sample", "compare", "predict"])
    assert (folder / "loss.png").stat().st_size > 0 and (folder / "loss.svg").stat().st_size > 0
    out = capsys.readouterr().out
    assert "loss 5.000 -> 1.250 in 4 steps, held out 1.500; plots: " in out
    assert "next: scaling predict llama3-70b" in out and "left out" not in out


def test_a_machine_that_cannot_compile_for_absent_gpus_sees_the_rest(played, capsys):
    code, _, folder = played(elsewhere=2)
    assert code == 0 and (folder / "loss.png").exists()
    out = capsys.readouterr().out
    assert "left out: this machine cannot compile for them" in out and "next: " in out


@pytest.mark.parametrize("failing", ["train", "sample", "compare"])
def test_a_part_that_fails_ends_the_demo_with_its_code(played, failing):
    code, said, folder = played(failing)
    assert code == 2 and said[-1] == failing
    assert not (folder / "loss.png").exists()


def test_an_earlier_demo_is_moved_and_a_folder_that_is_none_is_left(tmp_path):
    tmp_path = tmp_path / "demo"
    tmp_path.mkdir()
    kept = tmp_path / "thesis.txt"
    kept.write_text("years of work")
    with pytest.raises(SystemExit, match="not an earlier demo"):
        demo._make_room(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"name": "thesis"}))
    with pytest.raises(SystemExit, match="not an earlier demo"):
        demo._make_room(tmp_path)
    assert kept.exists()
    (tmp_path / "run.json").write_text(json.dumps({"name": "demo"}))
    demo._make_room(tmp_path)
    assert not tmp_path.exists()
    assert (tmp_path.with_name("demo-1") / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("count", "mesh"), [(1, "fsdp=1"), (4, "fsdp=4"), (8, demo.HOST_MESH), (16, "fsdp=16")]
)
def test_the_mesh_is_of_all_devices(monkeypatch, count, mesh):
    monkeypatch.setattr(jax, "device_count", lambda: count)
    assert demo._mesh() == ["--mesh", mesh]


def test_a_number_of_devices_that_does_not_divide_the_demo_says_how_to_show_fewer(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 6)
    with pytest.raises(
        SystemExit, match="6 are present; show it 4, .*CUDA_VISIBLE_DEVICES=0,1,2,3"
    ):
        demo._mesh()


@pytest.mark.slow
def test_the_demo_runs_from_nothing(tmp_path):
    words = [sys.executable, "-m", "experiments.demo", "--steps", "24"]
    inherited = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(
        [*words, "--run-dir", str(tmp_path / "demo")],
        cwd=ROOT,
        env={**inherited, "SCALING_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "measuring this machine, once" in done.stdout and "predicted" in done.stderr
    assert "in 24 steps" in done.stdout and "next: scaling predict" in done.stdout
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"loss.png", "loss.svg", "comparison.html", "predicted.json", "measured.json"} <= names
