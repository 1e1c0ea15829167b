"""A training process that ends is explained, and started again where another try may help."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from scaling.meshes.errors import InputError
from scaling.training.launch import supervisor
from scaling.training.launch.supervisor import lost_peer_message, run_with_restarts

JOB = {
    "JAX_COORDINATOR_ADDRESS": "localhost:1",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Makes the child of `run_with_restarts` a shell script; returns what its calls were given."""
    script, calls = tmp_path / "python", tmp_path / "calls"

    def become(body):
        script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nn=$(wc -l < {calls})\n{body}\n')
        script.chmod(0o755)
        return lambda: calls.read_text().splitlines()

    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(supervisor, "SETTLE", 0.0)  # no waiting for others
    monkeypatch.chdir(tmp_path)
    return become


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_crash_is_restarted_from_the_last_checkpoint(child, tmp_path, capfd, resume):
    calls = child('echo "$SCALING_TRAIN_RESTARTED" >> seen; [ $n -ge 3 ] || exit 77')
    (tmp_path / "checkpoints" / "step_00000003").mkdir(parents=True)
    assert run_with_restarts(["train", "toy", "--steps", "9", *resume], 5, tmp_path) == 0
    first, *rest = (line.split(" -m ")[1] for line in calls())
    assert first == " ".join(["scaling train toy --steps 9", *resume])
    assert rest == ["scaling train toy --steps 9 --resume"] * 2
    assert "ended with 77; restart 2 of 5" in capfd.readouterr().err
    assert (tmp_path / "seen").read_text() == "\n1\n1\n"  # a restarted process knows it


def test_a_crash_before_the_first_checkpoint_starts_again_from_nothing(child, tmp_path):
    calls = child("[ $n -ge 2 ] || { echo 1 > metrics.jsonl; exit 1; }")
    assert run_with_restarts(["train", "toy"], 1, tmp_path) == 0
    assert "--resume" not in calls()[1]
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_crash_deletes_nothing_that_an_earlier_run_wrote(child, tmp_path):
    child("exit 1")
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert run_with_restarts(["train", "toy"], 1, tmp_path) == 1
    assert (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("body", "restarts", "environment", "code", "attempts"),
    [
        ("exit $((n + 10))", 3, {}, 14, 4),  # the restarts are used up
        ("exit 0", 3, {}, 0, 1),
        ("exit 2", 3, {}, 2, 1),  # bad input
        ("exit 2", 3, JOB, 2, 1),
        ("[ $n -ge 2 ] || exit 1; [ $n -ge 3 ] || exit 2", 5, JOB, 0, 3),  # did not come together
        ("touch nan_step_7.npz; exit 1", 3, {}, 1, 1),
        ("exit 75", 3, {}, 75, 1),  # the code of a stop by a signal to another process
        ("kill -KILL $$", 0, {}, 137, 1),
        ("exit 130", 0, JOB, 1, 1),  # as a shell says that SIGINT ended it
        ("exit 255", 0, JOB, 255, 1),
    ],
)
def test_a_crash_is_repeated_and_an_end_bad_input_nan_or_stop_are_not(
    child, tmp_path, body, restarts, environment, code, attempts
):
    calls = child(body)
    assert run_with_restarts(["train"], restarts, tmp_path, environment, 75) == code
    assert len(calls()) == attempts


@pytest.mark.parametrize(
    ("body", "code", "attempts"),
    [("[ $n -ge 2 ] || exit 77", 0, 2), ("touch nan_step_7.npz; exit 1", 1, 1)],
)
def test_the_nan_of_an_earlier_attempt_is_not_that_of_this_one(
    child, tmp_path, body, code, attempts
):
    mark = tmp_path / "nan_step_7.npz"
    mark.write_text("")
    os.utime(mark, (1, 1))
    calls = child(body)
    assert run_with_restarts(["train"], 3, tmp_path) == code
    assert len(calls()) == attempts


def test_a_negative_number_of_restarts_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="--restarts -1"):
        run_with_restarts(["train"], -1, tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 143)])
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
        from scaling.training.launch.supervisor import run_with_restarts
        sys.executable = {str(child)!r}
        sys.exit(run_with_restarts(["train"], 3, pathlib.Path({str(tmp_path)!r})))
        """)
    )
    process = subprocess.Popen([sys.executable, str(parent)], stderr=subprocess.DEVNULL)
    while not marks.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(600) == code
    assert marks.read_text().split() == ["up", "saved"]


# Jobs of several processes


@pytest.mark.parametrize(
    ("signal_name", "words"),
    [
        ("ABRT", f"stopped: process 1 of 2 ({socket.gethostname()}) cannot go on"),  # by jax
        ("KILL", "was ended by SIGKILL"),
    ],
)
def test_an_end_by_a_signal_is_explained_and_is_exit_code_1(
    child, tmp_path, capfd, signal_name, words
):
    child(f"kill -{signal_name} $$")
    assert run_with_restarts(["train"], 0, tmp_path, JOB) == 1
    assert words in capfd.readouterr().err


BEAT = """echo '[3, 12, "step", 0.0, 0.0, "a", 0.0]' > /proc/self/fd/$SCALING_TRAIN_BEATS"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
@pytest.mark.parametrize(
    ("body", "environment", "words"),
    [
        (f"{BEAT}\nexec sleep 600", {}, "stuck: the training process does not answer"),
        (f"{BEAT}\nkill -STOP $$", JOB, f"({socket.gethostname()}) is stopped by a signal"),
    ],
)
def test_a_child_that_says_nothing_any_more_is_ended_and_started_again(
    child, tmp_path, monkeypatch, capfd, body, environment, words
):
    monkeypatch.setattr(supervisor, "UNANSWERED", 0.1)
    monkeypatch.setattr(supervisor, "LAST_WORDS", 0.0)
    calls = child(f"[ $n -ge 2 ] && exit 0\n{body}")
    environment = {**os.environ, **environment}
    assert run_with_restarts(["train"], 1, tmp_path, environment) == 0
    assert len(calls()) == 2
    said = capfd.readouterr().err
    assert words in said and "in step 12" in said and "ended with 124; restart 1 of 1" in said


def test_without_a_checkpoint_nobody_is_told_to_resume(tmp_path):
    said = lost_peer_message("process 0", "gone", tmp_path)
    assert "--resume" not in said and "train.checkpoint_every" in said


def test_a_folder_that_was_moved_is_not_called_one_without_a_checkpoint(child, tmp_path, capfd):
    """And a restarted process that may wait for others says how long."""
    child(f"mv {tmp_path / 'run'} {tmp_path / 'moved'}; kill -ABRT $$")
    (tmp_path / "run" / "checkpoints" / "step_00000003").mkdir(parents=True)
    assert run_with_restarts(["train"], 1, tmp_path / "run", JOB) == 1
    said = capfd.readouterr().err
    assert f"{tmp_path / 'run'} is gone: if it was moved, put it back" in said
    assert "holds no checkpoint" not in said
    assert "restart 1 of 1, which waits up to 300 s for the others of the job" in said


LIVES_ON = """
import subprocess, sys, time
from scaling.training.launch.supervisor import die_with_parent
if sys.argv[1:]:
    die_with_parent()
    print("ready", flush=True)
    time.sleep(600)
subprocess.Popen([sys.executable, __file__, "child"]).wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is of Linux")
def test_who_trains_does_not_outlive_the_process_beside_it(tmp_path):
    """Else a host of which only that one was killed would go on without its job."""
    script = tmp_path / "lives_on.py"
    script.write_text(LIVES_ON)
    words = [sys.executable, str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as beside:
        assert beside.stdout.readline() == "ready\n"
        beside.kill()
        assert beside.stdout.read() == ""  # comes to its end once nobody can write any more


def test_a_restart_waits_until_the_old_coordinator_is_gone(child, tmp_path, monkeypatch):
    """Else the new process would join those who are about to end."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # only the main thread may set handlers
    with socket.create_server(("127.0.0.1", 0)) as old:
        address = f"127.0.0.1:{old.getsockname()[1]}"
        calls = child("[ $n -ge 2 ] || exit 1")
        env = {**JOB, "JAX_COORDINATOR_ADDRESS": address}
        job = threading.Thread(target=run_with_restarts, args=(["train"], 1, tmp_path, env))
        job.start()
        old.accept()[0].close()  # it has looked, and somebody was there
        assert len(calls()) == 1
        old.close()
        job.join()
    assert len(calls()) == 2
