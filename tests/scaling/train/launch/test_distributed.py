"""Jobs of several processes, signals, and restarts after a crash."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.cli.main import main
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run import run_dict, save_run
from scaling.train.launch.distributed import (
    NotJoined,
    job_kind,
    local_devices,
    start_distributed,
)
from scaling.train.launch.stopping import StopSignal
from scaling.train.launch.supervisor import BEGAN, run_with_restarts
from scaling.train.loop import train
from scaling.train.monitor.metrics import read_metrics
from scaling.train.run_folder import Options

DEADLINE = 600  # seconds for processes to come up, compile and end on a busy machine
EXPLICIT = {
    "JAX_COORDINATOR_ADDRESS": "localhost:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}
OF_EIGHT = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "1", "SLURM_LOCALID": "5"}
ALONE = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0"}


# What started this process


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, None),
        (EXPLICIT, "explicit"),
        ({**EXPLICIT, "SLURM_STEP_NUM_TASKS": "8"}, "explicit"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, "Slurm"),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}, None),
        ({"SLURM_NTASKS": "8"}, None),  # in the batch script, outside srun
        ({"SLURM_STEP_NUM_TASKS": ""}, None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({name: "" for name in EXPLICIT}, None),
    ],
)
def test_the_environment_tells_what_started_this_process(environment, kind):
    assert job_kind(environment) == kind


@pytest.mark.parametrize(
    "launcher",
    [
        {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"},
    ],
)
def test_an_address_is_enough_where_a_launcher_gives_the_ranks(launcher):
    address = {"JAX_COORDINATOR_ADDRESS": "node0:1234"}
    assert job_kind(address | launcher) == "explicit"
    with pytest.raises(InputError, match="JAX_PROCESS_ID=7"):
        job_kind(address | launcher | {"JAX_PROCESS_ID": "7"})


@given(st.sets(st.sampled_from(sorted(EXPLICIT)), min_size=1, max_size=2))
def test_half_an_explicit_job_names_what_is_missing(given_names):
    missing = [name for name in EXPLICIT if name not in given_names]
    with pytest.raises(InputError, match=", ".join(missing) + " is not"):
        job_kind({name: EXPLICIT[name] for name in given_names})


@pytest.mark.parametrize(
    ("index", "count"), [("4", "4"), ("-1", "4"), ("a", "4"), ("0", "x"), ("0", "0"), ("²", "4")]
)
def test_a_process_number_outside_the_job_is_bad_input(index, count):
    with pytest.raises(InputError, match=f"JAX_PROCESS_ID={index} .*JAX_NUM_PROCESSES={count}"):
        job_kind({**EXPLICIT, "JAX_PROCESS_ID": index, "JAX_NUM_PROCESSES": count})


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_a_job_size_that_is_no_number_is_bad_input(name):
    with pytest.raises(InputError, match=name):
        job_kind({name: "many"})


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":", "localhost:port"])
def test_an_address_without_a_port_is_bad_input_before_anything_is_started(address):
    with pytest.raises(InputError, match=r"JAX_COORDINATOR_ADDRESS=.*host:port"):
        job_kind({**EXPLICIT, "JAX_COORDINATOR_ADDRESS": address})


def test_a_single_process_starts_nothing():
    assert start_distributed({}) is None


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, None),
        (EXPLICIT, None),
        ({"SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0"}, [0]),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "4", "SLURM_LOCALID": "0"}, None),
        ({**EXPLICIT, "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, None),  # by hand, in a batch
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "7"}, [7]),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, None),
        (OF_EIGHT, [5]),
        ({**OF_EIGHT, "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, [5]),
        ({**OF_EIGHT, "CUDA_VISIBLE_DEVICES": "5"}, [0]),  # srun --gpus-per-task=1
        ({**OF_EIGHT, "ROCR_VISIBLE_DEVICES": "5"}, [0]),
        ({**OF_EIGHT, "JAX_LOCAL_DEVICE_IDS": "2,3"}, None),  # which jax reads itself
    ],
)
def test_a_process_has_one_device_only_where_it_shares_its_host(environment, devices):
    assert local_devices(environment) == devices


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        (EXPLICIT, None),
        ({**ALONE, "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [0, 1, 2, 3]),
        ({**ALONE, "HIP_VISIBLE_DEVICES": "4,5"}, [0, 1]),
        ({**ALONE, "CUDA_VISIBLE_DEVICES": "0,1", "JAX_LOCAL_DEVICE_IDS": "1"}, None),
        (ALONE, None),  # nobody names them: jax takes the first
    ],
)
def test_jax_gets_all_gpus_that_are_named_to_a_process_alone_on_its_host(
    monkeypatch, environment, devices
):
    options = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: options.update(given))
    assert start_distributed(environment) == job_kind(environment)
    assert options["local_device_ids"] == devices
    detection = "deactivate" if environment is EXPLICIT else None
    assert options.get("cluster_detection_method") == detection


def test_processes_that_do_not_come_are_no_bad_input(monkeypatch, tmp_path, capsys):
    """Code 2 would say that another try is of no use."""

    def initialize(**options):
        raise RuntimeError("DEADLINE_EXCEEDED: Barrier timed out.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(NotJoined, match="could not join the explicit job: DEADLINE_EXC"):
        start_distributed(EXPLICIT)
    for name, value in {**EXPLICIT, BEGAN: "0.0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "tiny", "--run-dir", str(tmp_path / "new")]) == 1
    assert "error: could not join the explicit job" in capsys.readouterr().err


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_becomes_a_flag_and_the_handlers_come_back(number):
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert stop.received is None
        os.kill(os.getpid(), number)
        assert stop.received == signal.Signals(number).name
    assert signal.getsignal(number) is before


def test_a_second_signal_means_now():
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background
    with pytest.raises(KeyboardInterrupt), StopSignal():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# Restarts, with a shell script in place of Python


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Makes the child of `run_with_restarts` a script; returns what its calls were given."""
    script, calls = tmp_path / "python", tmp_path / "calls"

    def become(body):
        script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nn=$(wc -l < {calls})\n{body}\n')
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return lambda: calls.read_text().splitlines()

    return become


def save_a_checkpoint(folder, step=3):
    """What `Checkpoints.latest` takes for a finished checkpoint."""
    path = folder / "checkpoints" / f"step_{step:08d}"
    path.mkdir(parents=True)


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_crash_is_restarted_from_the_last_checkpoint(child, tmp_path, capfd, resume):
    calls = child("[ $n -ge 3 ] || exit 77")
    save_a_checkpoint(tmp_path)
    assert run_with_restarts(["train", "toy", "--steps", "9", *resume], 5, tmp_path) == 0
    first, *rest = (line.split(" -m ")[1] for line in calls())
    assert first == " ".join(["scaling train toy --steps 9", *resume])
    assert rest == ["scaling train toy --steps 9 --resume"] * 2
    assert "ended with 77; restart 2 of 5" in capfd.readouterr().err


def test_a_crash_before_the_first_checkpoint_starts_again_from_nothing(child, tmp_path):
    calls = child("[ $n -ge 2 ] || exit 1")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert run_with_restarts(["train", "toy"], 1, tmp_path) == 0
    assert "--resume" not in calls()[1]
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("body", "restarts", "code", "attempts"),
    [
        ("exit $((n + 10))", 1, 12, 2),  # the restarts are used up
        ("exit $((n + 10))", 3, 14, 4),
        ("exit 0", 3, 0, 1),
        ("exit 2", 3, 2, 1),  # bad input
        ("touch nan_step_7.npz; exit 1", 3, 1, 1),
        ("exit 75", 3, 75, 1),  # the code of a stop by a signal to another process
    ],
)
def test_a_crash_is_repeated_and_an_end_bad_input_nan_or_stop_are_not(
    child, tmp_path, monkeypatch, body, restarts, code, attempts
):
    calls = child(body)
    monkeypatch.chdir(tmp_path)
    assert run_with_restarts(["train"], restarts, tmp_path, stopped_code=75) == code
    assert len(calls()) == attempts


@pytest.mark.parametrize(
    ("body", "code", "attempts"),
    [("[ $n -ge 2 ] || exit 77", 0, 2), ("touch nan_step_7.npz; exit 1", 1, 1)],
)
def test_the_nan_of_an_earlier_attempt_is_not_that_of_this_one(
    child, tmp_path, monkeypatch, body, code, attempts
):
    mark = tmp_path / "nan_step_7.npz"
    mark.write_text("")
    os.utime(mark, (1, 1))
    calls = child(body)
    monkeypatch.chdir(tmp_path)
    assert run_with_restarts(["train"], 3, tmp_path) == code
    assert len(calls()) == attempts


def test_a_restarted_process_knows_that_it_is_one(child, tmp_path):
    calls = child(f'echo "$SCALING_TRAIN_RESTARTED" >> {tmp_path}/seen; [ $n -ge 2 ] || exit 1')
    assert run_with_restarts(["train", "toy"], 1, tmp_path) == 0
    assert len(calls()) == 2 and (tmp_path / "seen").read_text() == "\n1\n"


def test_a_negative_number_of_restarts_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="--restarts -1"):
        run_with_restarts(["train"], -1, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", [0, 143])
def test_a_signal_is_passed_on_and_ends_the_restarts(tmp_path, number, code):
    """The child has time to save (longer than `subprocess` waits by itself) and is not repeated."""
    marks = tmp_path / "marks"
    child, parent = tmp_path / "python", tmp_path / "parent.py"
    child.write_text(
        f'#!/bin/sh\ntrap "sleep 0.5; echo saved >> {marks}; exit {code}" TERM INT\n'
        f"echo up >> {marks}\nfor i in $(seq 100); do sleep 0.05; done\n"
    )
    child.chmod(0o755)
    parent.write_text(
        textwrap.dedent(f"""
        import pathlib, sys
        from scaling.train.launch.supervisor import run_with_restarts
        sys.executable = {str(child)!r}
        sys.exit(run_with_restarts(["train"], 3, pathlib.Path({str(tmp_path)!r})))
        """)
    )
    process = subprocess.Popen([sys.executable, str(parent)], stderr=subprocess.DEVNULL)
    while not marks.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(DEADLINE) == code
    assert marks.read_text().split() == ["up", "saved"]


# Real processes


def scaling(words, environment, **options):
    """`scaling WORDS` as a process of its own, on CPU devices, with a cache of the test."""
    inherited = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    return subprocess.Popen(
        [sys.executable, "-m", "scaling", *map(str, words)],
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def start_two(run, folder, cache, working_in=(None, None)):
    """Two processes with two devices each, joined over the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    common = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": "2",
        "SCALING_CACHE": str(cache),
    }
    words = ["train", run, "--run-dir", folder, "--devices", 2]
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


def test_two_processes_train_like_one(toy, prepare, tmp_path):
    plan, programs = prepare(toy(mesh={"fsdp": 4}, eval_every=4))
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
def test_a_run_outlives_who_reads_its_lines(toy, tmp_path):
    save_run(toy(steps=300), tmp_path / "run.json")
    words = ["train", tmp_path / "run.json", "--run-dir", tmp_path / "run", "--devices", 1]
    process = scaling(words, {"SCALING_CACHE": str(tmp_path / "cache")})
    process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    assert process.wait(DEADLINE) == 0
    assert len(losses(tmp_path / "run")) == 300
    assert (tmp_path / "run" / "checkpoints" / "step_00000300" / "checksums_0.json").exists()


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
    (saved,) = (folder / "checkpoints").iterdir()
    assert int(saved.name.removeprefix("step_")) == len(losses(folder))
    assert losses(folder) == losses(folder / "process_1")


DIES_ONCE = """
import json, os, pathlib
from scaling.run import read_run
from scaling.train.monitor.metrics import MetricsLog

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
from scaling.train.data.batches import TrainingBatches

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
    assert "slow data: process 1 waits " in outputs[0][1] and "slow data" not in outputs[1][1]


@pytest.mark.slow
def test_processes_save_by_time_after_the_same_steps(toy, tmp_path):
    file = tmp_path / "often.py"
    text = json.dumps(run_dict(toy(mesh={"fsdp": 4}, steps=60, checkpoint_every=None)))
    file.write_text(
        "import json\n"
        "from scaling.run import read_run\n"
        "from scaling.train.checkpoint import schedule\n"
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
