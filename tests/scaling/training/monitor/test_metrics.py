"""No digit and no line is lost, whatever kills the run."""

import json
import math
import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.training.run_folder.metrics import (
    MetricsLog,
    Sink,
    check_sinks,
    mend_metrics,
    open_sinks,
    read_metrics,
)


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.write(1, loss=2.5, tokens=1024)
        assert (
            tmp_path / "metrics.jsonl"
        ).read_text() == '{"step": 1, "loss": 2.5, "tokens": 1024}\n'


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_digit_of_a_float_comes_back(tmp_path_factory, losses):
    folder = tmp_path_factory.mktemp("run")
    with MetricsLog(folder) as log:
        for step, loss in enumerate(losses, 1):
            log.write(step, loss=loss)
    assert [record["loss"] for record in read_metrics(folder)] == losses


def test_scalar_arrays_become_numbers_of_the_same_value(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.write(np.int64(3), loss=np.float32(0.1), tokens=np.int32(7), note="held out")
    record = read_metrics(tmp_path)[0]
    assert record == {"step": 3, "loss": float(np.float32(0.1)), "tokens": 7, "note": "held out"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_what_is_not_finite_is_null_so_that_every_line_stays_json(tmp_path, value):
    with MetricsLog(tmp_path) as log:
        log.write(1, loss=value)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": null}\n'


def test_a_resumed_run_appends(tmp_path):
    for step in (1, 2):
        with MetricsLog(tmp_path) as log:
            log.write(step)
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2]


@given(st.data())
def test_a_kill_at_any_byte_costs_at_most_the_line_being_written(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    with MetricsLog(folder) as log:
        for step in range(1, 4):
            log.write(step, loss=1 / step)
    path = folder / "metrics.jsonl"
    written = path.read_bytes()
    cut = data.draw(st.integers(0, len(written)))
    path.write_bytes(written[:cut])
    whole = written[:cut].count(b"\n")
    assert [record["step"] for record in read_metrics(path)] == list(range(1, whole + 1))
    with MetricsLog(folder) as log:
        log.write(99)
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps == [*range(1, whole + 1), 99]


def test_torn_lines_of_all_processes_are_removed_and_those_of_others_are_named(tmp_path):
    for folder in (tmp_path, tmp_path / "process_1", tmp_path / "process_2"):
        with MetricsLog(folder) as log:
            log.write(1, loss=1.0)
            log.write(2, loss=0.5)
    torn = [tmp_path / "metrics.jsonl", tmp_path / "process_1" / "metrics.jsonl"]
    for path in torn:
        path.write_bytes(path.read_bytes()[:-5])
    (note,) = mend_metrics(tmp_path, [{"step": 2, "loss": 0.5}], 2)
    assert note == f"warning: {torn[1]} had a torn last line, which is removed"
    assert [path.read_bytes().count(b"\n") for path in torn] == [2, 1]
    assert torn[1].read_bytes() == b'{"step": 1, "loss": 1.0}\n'
    assert mend_metrics(tmp_path, [], 2) == []


@pytest.mark.parametrize("line", ["{torn", "[1, 2]", "3", "[" * 100_000])
def test_a_broken_line_in_the_middle_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    with pytest.raises(InputError, match="metrics.jsonl:2 is not .*repair or delete"):
        read_metrics(path)


def test_a_folder_without_metrics_says_so(tmp_path):
    with pytest.raises(InputError, match="no metrics at .*metrics.jsonl"):
        read_metrics(tmp_path)


def test_every_sink_receives_the_numbers_of_every_record_and_is_closed(tmp_path):
    calls = []
    sink = Sink(lambda *record: calls.append(record), lambda: calls.append("closed"))
    with MetricsLog(tmp_path, [sink, sink]) as log:
        log.write(1, loss=2.0, note="text", grad_norm=math.nan)
        log.write(2, loss=1.0, tokens=8)
    records = [(1, {"loss": 2.0})] * 2 + [(2, {"loss": 1.0, "tokens": 8.0})] * 2
    assert calls == [*records, "closed", "closed"]


@pytest.mark.parametrize(("sink", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_sink_that_is_unknown_or_not_installed_says_what_to_do(monkeypatch, sink, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"pip install 'jax-scaling\[{sink}\]'"):
        check_sinks([sink])
    with pytest.raises(InputError, match=f"did you mean '{sink}'"):
        check_sinks([sink[:-1]])


def test_sinks_are_made_by_their_packages(tmp_path, monkeypatch):
    calls = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append((values, step)),
        finish=lambda: calls.append("finished"),
    )
    writer = types.SimpleNamespace(
        add_scalar=lambda *scalar: calls.append(scalar),
        close=lambda: calls.append("closed"),
    )
    modules = {
        "tensorboardX": {"SummaryWriter": lambda folder: writer},
        "wandb": {"init": lambda **options: calls.append(options) or run},
    }
    for name, contents in modules.items():
        module = types.SimpleNamespace(**contents, __spec__=ModuleSpec(name, None))
        monkeypatch.setitem(sys.modules, name, module)
    with MetricsLog(tmp_path, open_sinks(["tensorboard", "wandb"], tmp_path, "toy", {"a": 1})) as l:
        l.write(5, loss=2.0)
    options, *others = calls
    assert options["name"] == "toy" and options["config"] == {"a": 1}
    assert others == [("loss", 2.0, 5), ({"loss": 2.0}, 5), "closed", "finished"]


def test_a_list_is_one_value_of_a_line_and_several_of_a_sink(tmp_path):
    seen = {}
    with MetricsLog(
        tmp_path, [Sink(lambda step, numbers: seen.update(numbers), lambda: None)]
    ) as log:
        log.write(1, norms=[0.5, math.nan], load=[[1.0, 2.0]])
    assert read_metrics(tmp_path) == [{"step": 1, "norms": [0.5, None], "load": [[1.0, 2.0]]}]
    assert seen == {"norms/0": 0.5}
