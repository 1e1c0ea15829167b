"""Real processes: two that train like one, signals, other data, and a run that dies."""

import json
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.chat.make import HERE
from scaling.meshes.shape import MeshShape
from scaling.run import run_dict, save_run
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from tests.scaling.training.fakes import scaling, train

CHATS = HERE / "chats.jsonl"
DEADLINE = 600  # seconds for processes to come up, compile and end on a busy machine


def start_two(run, folder, cache, working_in=(None, None), more=()):
    """Two processes with two devices each, joined over the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    common = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": "2",
        "SCALING_CACHE": str(cache),
    }
    words = ["train", run, "--run-dir", folder, "--devices", 2, *more]
    return [
        scaling(words, {**common, "JAX_PROCESS_ID": str(index)}, cwd=place)
        for index, place in enumerate(working_in)
    ]


def end_all(processes):
    """What each printed, (stdout, stderr); none outlives the test."""
    try:
        return [process.communicate(timeout=DEADLINE) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def losses(folder):
    return [record["loss"] for record in read_metrics(folder) if "loss" in record]


@pytest.mark.parametrize(
    "data",
    [{}, pytest.param({"data": str(CHATS), "documents": "packed"}, marks=pytest.mark.slow)],
    ids=["text", "chats"],
)
def test_two_processes_that_read_their_own_rows_train_like_one(toy, prepare, tmp_path, data):
    plan, programs = prepare(toy(mesh={"fsdp": 4}, **data))
    save_run(plan.run, tmp_path / "run.json")
    processes = start_two(tmp_path / "run.json", tmp_path / "two", tmp_path / "cache")
    train(plan, programs, Options(tmp_path / "one"))
    outputs = end_all(processes)
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    assert losses(tmp_path / "two") == losses(tmp_path / "two" / "process_1")
    assert (tmp_path / "two" / "checkpoints" / "step_00000008" / "checksums_0.json").exists()
    first, second = ((out, err) for out, err in outputs)
    assert "trained to step 8" in first[0] and "step 8/8" in first[1]
    assert "trained to step" not in second[0] and "step 8/8" not in second[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "messages"),
    [
        (("one ", "two "), ["the data of processes 1 are not those of process 0"] * 2),
        (("words ", None), ["another process cannot use the data", "no such file or folder"]),
    ],
)
def test_processes_with_other_data_do_not_train(toy, tmp_path, texts, messages):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, text in zip(folders, texts, strict=True):
        folder.mkdir()
        if text:
            (folder / "text.txt").write_text(text * 3000)
    save_run(toy(mesh={"fsdp": 4}, data="text.txt"), tmp_path / "run.json")
    processes = start_two(tmp_path / "run.json", tmp_path / "run", tmp_path / "cache", folders)
    outputs = end_all(processes)
    assert [process.returncode for process in processes] == [2, 2], outputs
    assert all(message in err for message, (_, err) in zip(messages, outputs, strict=True))


@pytest.mark.slow
def test_a_run_that_is_begun_twice_is_written_once(toy, tmp_path):
    """The second one leaves everything that the first one wrote, its prediction too."""
    save_run(toy(steps=10_000, checkpoint_every=1), tmp_path / "run.json")
    words = ["train", tmp_path / "run.json", "--run-dir", tmp_path / "run", "--devices", 1]
    cache = {"SCALING_CACHE": str(tmp_path / "cache")}
    first = scaling(words, cache)
    try:
        while not list((tmp_path / "run").glob("checkpoints/step_*/checksums_0.json")):
            assert first.poll() is None
            time.sleep(0.1)
        second = scaling([*words, "--resume", "--steps", "20000"], cache)
        (_, said), before = second.communicate(timeout=DEADLINE), first.poll()
        assert second.returncode == 2 and before is None
        assert f"another run, process {first.pid} on" in said
        assert "predicted:" not in said and "step 1/" not in said
    finally:
        first.terminate()
        first.communicate()
    assert first.returncode == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["train"]["steps"] == 10_000


@pytest.mark.slow
@pytest.mark.parametrize("told", [[0], [1], [1, 0]], ids=str)
def test_a_signal_to_any_process_saves_one_checkpoint_of_all(toy, tmp_path, told):
    run = toy(mesh={"data": 2, "fsdp": 2}, steps=100_000)
    save_run(run, tmp_path / "run.json")
    folder = tmp_path / "run"
    processes = start_two(tmp_path / "run.json", folder, tmp_path / "cache")
    deadline = time.monotonic() + DEADLINE
    while not ((folder / "metrics.jsonl").exists() and len(losses(folder)) > 10):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for index in told:
        processes[index].terminate()
        time.sleep(0.05)
    outputs = end_all(processes)
    assert [process.returncode for process in processes] == [0, 0], outputs
    (saved,) = (folder / "checkpoints").glob("step_*")
    assert int(saved.name.removeprefix("step_")) == len(losses(folder))
    assert losses(folder) == losses(folder / "process_1")


DIES_ONCE = """
import json, os, pathlib
from scaling.run import read_run
from scaling.training.run_folder.metrics import MetricsLog

write, first = MetricsLog.write, not pathlib.Path({marker!r}).exists()

def dying(log, step, **values):
    write(log, step, **values)
    if step == 6 and first:
        pathlib.Path({marker!r}).touch()
        os._exit(77)

MetricsLog.write = dying

def run():
    return read_run(json.loads({text!r}))
"""


@pytest.mark.slow
def test_a_run_that_dies_is_restarted_and_ends_as_if_it_had_not(toy, prepare, tmp_path):
    plan, programs = prepare(toy(checkpoint_every=2))
    run = replace(plan.run, mesh=MeshShape())
    file = tmp_path / "dies.py"
    marker = str(tmp_path / "died")
    file.write_text(DIES_ONCE.format(marker=marker, text=json.dumps(run_dict(run))))
    words = ["train", f"{file}:run", "--devices", 1, "--restarts", 2, "--run-dir"]
    process = scaling([*words, tmp_path / "run"], {"SCALING_CACHE": str(tmp_path / "cache")})
    _, errors = process.communicate(timeout=2 * DEADLINE)
    assert process.returncode == 0, errors
    assert "ended with 77; restart 1 of 2" in errors and "restart 2" not in errors
    assert Path(marker).exists()
    train(plan, programs, Options(tmp_path / "whole"))
    records = {r["step"]: r["loss"] for r in read_metrics(tmp_path / "run") if "loss" in r}
    assert list(records.values()) == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


SLOW_DATA = """
import json, os, time
from scaling.run import read_run
from scaling.training.data.batches import TrainingBatches

draw = TrainingBatches.__next__

def slowly(batches):
    time.sleep(0.5 * (os.environ["JAX_PROCESS_ID"] == "1"))
    return draw(batches)

TrainingBatches.__next__ = slowly

def run():
    return read_run(json.loads({text!r}))
"""


@pytest.mark.slow
def test_the_process_whose_data_are_slow_is_named(toy, tmp_path):
    """The time of a step is the same on both: each waits for the other."""
    file = tmp_path / "slow.py"
    file.write_text(SLOW_DATA.format(text=json.dumps(run_dict(toy(mesh={"fsdp": 4})))))
    outputs = end_all(start_two(f"{file}:run", tmp_path / "run", tmp_path / "cache"))
    (line,) = (line for line in read_metrics(tmp_path / "run") if "hosts_data_time" in line)
    assert line["hosts_data_time"][1] > 0.5 > line["hosts_data_time"][0]
    assert "slow data: process 1 (" in outputs[0][1] and "slow data" not in outputs[1][1]


@pytest.mark.slow
def test_processes_save_by_time_after_the_same_steps(toy, tmp_path):
    file = tmp_path / "often.py"
    text = json.dumps(run_dict(toy(mesh={"fsdp": 4}, steps=60, checkpoint_every=None)))
    file.write_text(
        "import json\n"
        "from scaling.run import read_run\n"
        "from scaling.training.checkpoint import schedule\n"
        "schedule.INTERVAL = 0.5\n"
        f"def run():\n    return read_run(json.loads({text!r}))\n"
    )
    outputs = end_all(start_two(f"{file}:run", tmp_path / "run", tmp_path / "cache"))
    assert "trained to step 60" in outputs[0][0], outputs
    paused = [
        line["step"] for line in read_metrics(tmp_path / "run") if line.get("checkpoint_time")
    ]
    assert paused  # saved before the end
    assert (tmp_path / "run" / "checkpoints" / "step_00000060" / "checksums_1.json").exists()


OWN = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

import scaling as sc


def run(mesh, bad=0):
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def batches():
        for step in range(1, 100):
            every = np.random.default_rng(step).normal(size=(8, 4)).astype(np.float32)
            own = np.split(every, jax.process_count())[jax.process_index()]
            own = own * np.float32(np.nan if step == bad else 1)
            yield jax.make_array_from_process_local_data(rows, own)

    def step(w, x):
        loss, slope = jax.value_and_grad(lambda w: ((x @ w - 1) ** 2).mean())(w)
        sums = jax.lax.with_sharding_constraint(x.sum(1), rows)
        return w - 0.1 * slope, {"loss": loss, "sums": sums}

    homes = dict(in_shardings=(whole, rows), out_shardings=(whole, None))
    jitted = jax.jit(step, donate_argnums=0, **homes)
    return sc.Training(state=jnp.zeros((4, 1)), step=jitted, data=batches())
"""


@pytest.mark.slow
def test_a_run_of_one_s_own_trains_resumes_and_stops_on_two_processes_as_on_one(tmp_path):
    """Its batches and a metric lie on both; the batch that led to NaN is saved whole."""
    (tmp_path / "own.py").write_text(OWN)
    run, folder, cache = f"{tmp_path / 'own.py'}:run", tmp_path / "two", tmp_path / "cache"
    every = ("--set", "train.checkpoint_every=4", "--steps")
    outputs = end_all(start_two(run, folder, cache, more=(*every, 6)))
    assert "trained to step 6" in outputs[0][0], outputs
    processes = start_two(run, folder, cache, more=(*every, 12, "--resume", "--set", "bad=10"))
    outputs = end_all(processes)
    assert [process.returncode for process in processes] == [1, 1], outputs
    assert "Lower the learning rate of" in outputs[0][1] and "resumed after step 6" in outputs[0][1]
    with np.load(folder / "nan_step_10.npz") as saved:
        assert saved["batch"].shape == (8, 4) and np.isnan(saved["batch"]).all()
    words = ["train", run, "--run-dir", tmp_path / "one", "--devices", 4, *every, 9]
    _, errors = scaling(words, {"SCALING_CACHE": str(cache)}).communicate(timeout=DEADLINE)
    assert losses(folder)[:9] == pytest.approx(losses(tmp_path / "one"), rel=1e-5), errors
    one, two = (
        [line["sums"] for line in read_metrics(place) if "sums" in line]
        for place in (tmp_path / "one", folder)
    )
    assert two[8] == pytest.approx(one[8], rel=1e-5)
