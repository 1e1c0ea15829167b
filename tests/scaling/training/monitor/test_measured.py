"""measured.json: the median of the steps after warm-up, its spread, memory, machine, versions."""

import json
import statistics
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.api.compare import read_run_folder
from scaling.meshes.errors import InputError
from scaling.training.monitor.environment import measured
from scaling.training.monitor.report import Clock
from scaling.training.run_folder.measured import WARM_UP, rebuild_measured
from scaling.training.run_folder.metrics import MetricsLog

COMPILED = 123_456  # bytes


def made_of(*peaks):
    """A plan on devices whose memory counters stand at `peaks` (None: they do not count)."""
    stats = [None if peak is None else {"peak_bytes_in_use": peak} for peak in peaks]
    devices = [
        SimpleNamespace(platform="gpu", device_kind="toy chip", memory_stats=lambda s=s: s)
        for s in stats
    ]
    mesh = SimpleNamespace(
        size=len(devices), devices=np.array(devices, dtype=object), local_devices=devices
    )
    return SimpleNamespace(run=SimpleNamespace(name="toy"), mesh=mesh)


def programs():
    sizes = "argument_size", "output_size", "alias_size", "temp_size", "host_temp_size"
    rest = {f"{size}_in_bytes": 0 for size in sizes}
    analysis = SimpleNamespace(peak_memory_in_bytes=COMPILED, **rest)
    return SimpleNamespace(step=SimpleNamespace(memory_analysis=lambda: analysis))


def numbered(times, first=1):
    return dict(enumerate(times, first))


def document_of(plan, times, recorded=None):
    of = plan.run.name, plan.mesh, programs().step
    return measured(*of, times, recorded, Clock(0.0).figures())


def step_time(times, recorded=None):
    return document_of(made_of(None), numbered(times), recorded)["step_time"]


@given(st.lists(st.floats(1e-3, 1e3), min_size=WARM_UP + 1, max_size=40))
def test_the_median_leaves_the_warm_up_out(times):
    document = step_time(times)
    assert document["measured"] == statistics.median(times[WARM_UP:])
    assert document["steps"] == len(times) - WARM_UP


def test_the_spread_is_the_distance_of_the_quartiles_over_the_median():
    document = step_time([1.0] * WARM_UP + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert document["spread"] == (6.0 - 2.0) / 4.0
    assert step_time([1.0] * 20)["spread"] == 0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_shorter_than_the_warm_up_is_measured_all_the_same(count):
    document = step_time([2.0] * count)
    assert document == {"measured": 2.0, "spread": None, "steps": count}
    assert step_time([]) == {"measured": None, "spread": None, "steps": 0}


@pytest.mark.parametrize("first", [1, 51])
def test_recorded_steps_are_left_out_unless_there_are_no_others(first):
    times = numbered([1.0] * (WARM_UP + 2) + [9.0] * 2 + [2.0] * 2, first)
    recorded = (first + WARM_UP + 2, first + WARM_UP + 3)
    document = document_of(made_of(None), times, recorded)["step_time"]
    assert document["steps"] == 4 and document["measured"] == 1.5
    every = document_of(made_of(None), times, (first, first + len(times)))["step_time"]
    assert every["steps"] == len(times) - WARM_UP


def test_memory_is_that_of_the_fullest_device_or_unknown_and_the_machine_is_named():
    document = document_of(made_of(5, 7, 6), {})
    assert document["memory"] == {"measured": 7, "compiled": COMPILED}
    assert document_of(made_of(None, None), {})["memory"]["measured"] is None
    assert document["machine"].startswith("3 x toy chip, ") and document["name"] == "toy"
    assert document["versions"]["jax"] == version("jax")


# Made again


@pytest.fixture
def unmeasured(tmp_path):
    """A folder of a run of six steps, the last four of them since its last start at 100 s."""
    (tmp_path / "run.json").write_text('{"name": "toy"}')
    versions = dict.fromkeys(("jax", "jaxlib", "flax", "optax", "grain"), "1.0")
    environment = {"began": 100.0, "machine": "2 x toy chip, x86_64", "versions": versions}
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    with MetricsLog(tmp_path) as log:
        for step, seconds in enumerate((9.0, 9.0, 5.0, 4.0, 3.0, 2.0), 1):
            log.write(step, loss=1.0, step_time=seconds, time=97.5 + step, peak_memory=10 * step)
    return tmp_path


@pytest.mark.parametrize("there", [None, '{"name": "to'])
def test_a_measurement_that_could_not_be_written_is_made_again_of_the_lines(unmeasured, there):
    if there:
        (unmeasured / "measured.json").write_text(there)
    (note,) = rebuild_measured(unmeasured)
    assert "measured.json was missing: made again from metrics.jsonl" in note
    document = json.loads((unmeasured / "measured.json").read_text())
    assert document["step_time"] == {"measured": 2.0, "spread": None, "steps": 1}
    assert document["memory"] == {"measured": 60, "compiled": None}
    assert (document["name"], document["machine"]) == ("toy", "2 x toy chip, x86_64")
    assert set(document) == set(document_of(made_of(None), {}))
    assert rebuild_measured(unmeasured) == []


@pytest.mark.parametrize("name", ["environment.json", "run.json", "metrics.jsonl"])
def test_what_is_not_known_is_not_made_up_and_what_is_missing_is_named(unmeasured, name):
    (unmeasured / name).write_text("{}")
    damaged = rebuild_measured(unmeasured)
    (unmeasured / name).unlink()
    missing = rebuild_measured(unmeasured)
    if name == "metrics.jsonl":  # then there is no step
        assert damaged == missing == []
    else:
        assert all(
            "cannot be made again from the 6 steps" in notes[0] for notes in (damaged, missing)
        )
        assert f"cannot read {unmeasured / name}" in missing[0]
    assert not (unmeasured / "measured.json").exists()


def test_a_comparison_says_what_is_missing_for_it(unmeasured):
    (unmeasured / "environment.json").unlink()
    with pytest.raises(InputError, match="from the 6 steps .*environment.json: No such file"):
        read_run_folder(unmeasured)


@pytest.mark.parametrize("seconds", ['"long"', "9" * 400], ids=["text", "beyond floats"])
def test_numbers_that_are_none_are_not_measured(unmeasured, seconds):
    lines = [f'{{"step": {n}, "step_time": {seconds}, "time": 105.0}}\n' for n in range(7, 11)]
    with (unmeasured / "metrics.jsonl").open("a") as file:
        file.writelines(lines)
    assert "cannot be made again" in rebuild_measured(unmeasured)[0]
    assert not (unmeasured / "measured.json").exists()
