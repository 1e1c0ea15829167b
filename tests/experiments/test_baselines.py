"""The comparison with PyTorch: turns, ratios and failures without it; the models with it."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import pytest

from experiments.baselines import alternate
from experiments.baselines.alternate import Case, table
from experiments.baselines.jax_step import main as jax_step
from experiments.gpu import measure
from scaling.models.accounting import count_parameters
from scaling.models.presets import preset

CASE = Case("tiny", 2, 16)
FakeStep = SimpleNamespace(memory_analysis=lambda: None)
FakeDevice = SimpleNamespace(memory_stats=lambda: {"peak_bytes_in_use": 7})
needs_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"), reason="needs torch: pip install torch"
)


def test_turns_change_their_order():
    seen = []
    turn = lambda side, case: seen.append((case.model, side)) or {"tokens_per_second": 1.0}
    alternate.alternate([CASE, Case("tiny-gpt", 2, 16)], 3, turn)
    assert [side for model, side in seen if model == "tiny"] == [
        *("jax", "torch", "torch", "jax", "jax", "torch")
    ]
    assert len(seen) == 12


def test_a_side_that_fails_is_kept_and_has_no_ratio():
    turn = lambda side, case: {"error": "no"} if side == "torch" else {"tokens_per_second": 5.0}
    [result] = alternate.alternate([CASE], 2, turn)
    assert result["ratio"] is None and result["turns"]["torch"] == [{"error": "no"}] * 2
    assert table([result]) == "tiny 2x16: jax 5 tokens/s, torch failed"


def test_a_python_without_torch_ends_in_a_line_that_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(alternate, "TINY", (CASE,))
    monkeypatch.setattr(sys, "executable", "no-such-python")
    words = ["--out", str(tmp_path), "--torch-python", "no-such-python", "--rounds", "1", "--tiny"]
    alternate.main(words)
    assert "jax failed, torch failed" in capsys.readouterr().out
    [path] = tmp_path.iterdir()
    [case] = json.loads(path.read_text())["cases"]
    assert "No such file" in case["turns"]["torch"][0]["error"]


@pytest.mark.slow
def test_our_side_prints_its_rate(capsys):
    jax_step(["--model", "tiny", "--batch", "2", "--sequence", "16"])
    document = json.loads(capsys.readouterr().out)
    assert document["tokens_per_second"] > 0
    assert document["parameters"] == count_parameters(preset("tiny")).total


def test_our_side_gives_the_peak_that_was_measured(monkeypatch, capsys):
    found = dict.fromkeys(("tokens_per_second", "step_time", "loss", "attention"))
    found["memory"] = measure._memory(FakeStep, [FakeDevice])
    monkeypatch.setattr("experiments.baselines.jax_step.measure", lambda *_: found)
    jax_step(["--model", "tiny", "--batch", "2", "--sequence", "16"])
    assert json.loads(capsys.readouterr().out)["peak_memory"] == 7


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("model", ["tiny", "tiny-gpt"])
def test_both_sides_have_the_same_parameters_and_a_falling_loss(model, capsys):
    from experiments.baselines.torch_step import main as torch_step

    documents = []
    for step in (jax_step, torch_step):
        step(["--model", model, "--batch", "2", "--sequence", "16"])
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0]["parameters"] == documents[1]["parameters"]
    assert all(d["loss"]["last"] < d["loss"]["first"] for d in documents)
