"""A process that cannot go on alone says why and ends at once."""

import os
import socket
import subprocess
import sys
import threading

import jax
import pytest

from scaling.meshes.errors import InputError
from scaling.train.launch import supervisor as restarts
from scaling.train.launch.distributed import process_name
from scaling.train.launch.lost_peer import abort_on_lost_peer, is_lost_peer
from scaling.train.launch.stopping import NotFinite
from scaling.train.launch.supervisor import lost_peer_message, run_with_restarts

JOB = {
    "JAX_COORDINATOR_ADDRESS": "localhost:1",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}


class Left(BaseException):
    """In place of the end of the process."""


class Saved:
    """Checkpoints of which the newest is step 40."""

    def finish(self, seconds):
        self.waited = seconds

    def latest(self):
        return 40


@pytest.fixture
def leaving(monkeypatch):
    """As one of two processes: ends a block with an error; returns the exit code."""

    def end(code):
        raise Left(code)

    def left(error):
        with pytest.raises(Left) as caught, abort_on_lost_peer(Saved()):
            raise error
        return caught.value.args[0]

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(os, "_exit", end)
    return left


def test_a_step_that_fails_for_a_lost_peer_says_so_and_what_to_do(leaving, capsys):
    assert leaving(jax.errors.JaxRuntimeError("UNKNOWN: Gloo: Connection closed by peer")) == 1
    said = capsys.readouterr().err
    assert "another process of the job has ended or cannot be reached: " in said
    assert "Connection closed by peer" in said and "checkpoint of step 40" in said


def test_a_fault_of_our_own_is_no_lost_peer(leaving, capsys):
    assert leaving(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")) == 1
    said = capsys.readouterr().err
    assert "RESOURCE_EXHAUSTED" in said and "Traceback" in said and "another process" not in said


def test_a_disk_that_is_full_on_one_host_ends_it_as_bad_input(leaving, capsys):
    assert leaving(InputError("the disk is full")) == 2
    assert capsys.readouterr().err == "error: the disk is full\n"


def test_a_stop_that_all_come_to_is_left_to_all(leaving):
    with pytest.raises(NotFinite), abort_on_lost_peer(Saved()):
        raise NotFinite("step 3")


def test_a_process_alone_ends_as_it_always_did():
    with pytest.raises(ZeroDivisionError), abort_on_lost_peer(Saved()):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (
            jax.errors.JaxRuntimeError("INTERNAL: NCCL operation failed: remote process exited"),
            True,
        ),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), False),
        (RuntimeError("Connection closed by peer"), False),
    ],
)
def test_only_what_xla_reports_can_be_a_lost_peer(error, lost):
    assert is_lost_peer(error) == lost


def test_without_a_checkpoint_nobody_is_told_to_resume():
    said = lost_peer_message("process 0", "gone", None)
    assert "--resume" not in said and "train.checkpoint_every" in said


# The process beside it


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A shell script in place of Python, and no waiting for others."""
    script, calls = tmp_path / "python", tmp_path / "calls"

    def become(body):
        script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nn=$(wc -l < {calls})\n{body}\n')
        script.chmod(0o755)
        return lambda: calls.read_text().splitlines()

    monkeypatch.setattr(restarts.sys, "executable", str(script))
    monkeypatch.setattr(restarts, "SETTLE", 0.0)
    return become


def test_an_abort_by_jax_is_explained_and_is_exit_code_1(child, tmp_path, capfd):
    child("kill -ABRT $$")
    assert run_with_restarts(["train"], 0, tmp_path, JOB) == 1
    said = capfd.readouterr().err
    assert said.startswith(f"stopped: process 1 of 2 ({socket.gethostname()}) cannot go on")


def test_a_process_that_was_killed_is_named_by_its_signal(child, tmp_path, capfd):
    child("kill -KILL $$")
    assert run_with_restarts(["train"], 0, tmp_path, JOB) == 1
    assert "was ended by SIGKILL" in capfd.readouterr().err


@pytest.mark.parametrize("code", [1, 77, 130, 255])
def test_an_exit_code_of_ones_own_is_kept(child, tmp_path, code):
    child(f"exit {code}")
    expected = 1 if code == 130 else code  # as a shell says that SIGINT ended it
    assert run_with_restarts(["train"], 0, tmp_path, JOB) == expected


LIVES_ON = """
import subprocess, sys, time
from scaling.train.launch.supervisor import die_with_parent
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


def test_outside_a_job_a_signal_keeps_its_exit_code_and_nobody_speaks_of_others(
    child, tmp_path, capfd
):
    child("kill -KILL $$")
    assert run_with_restarts(["train"], 0, tmp_path, {}) == 137
    assert capfd.readouterr().err == ""


def test_processes_that_did_not_come_together_again_try_once_more(child, tmp_path):
    calls = child("[ $n -ge 2 ] || exit 1; [ $n -ge 3 ] || exit 2")
    assert run_with_restarts(["train"], 5, tmp_path, JOB) == 0
    assert len(calls()) == 3


def test_what_is_bad_input_from_the_start_is_not_tried_again(child, tmp_path):
    calls = child("exit 2")
    assert run_with_restarts(["train"], 5, tmp_path, JOB) == 2
    assert len(calls()) == 1


def test_a_restart_waits_until_the_old_coordinator_is_gone(child, tmp_path):
    """Else the new process would join those who are about to end."""
    with socket.create_server(("127.0.0.1", 0)) as old:
        address = f"127.0.0.1:{old.getsockname()[1]}"
        calls = child("[ $n -ge 2 ] || exit 1")
        env = {**JOB, "JAX_COORDINATOR_ADDRESS": address}
        job = threading.Thread(target=run_with_restarts, args=(["train"], 1, tmp_path, env))
        unmanaged = restarts.signal.signal
        restarts.signal.signal = lambda *_: None  # only the main thread may set handlers
        try:
            job.start()
            old.accept()[0].close()  # it has looked, and somebody was there
            assert len(calls()) == 1
            old.close()
            job.join()
        finally:
            restarts.signal.signal = unmanaged
    assert len(calls()) == 2


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (JOB, "process 1 of 2"),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, "process 3 of 8"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, "process 0 of 4"),
    ],
)
def test_a_process_knows_its_name_whatever_started_it(env, name):
    assert process_name(env) == f"{name} ({socket.gethostname()})"
