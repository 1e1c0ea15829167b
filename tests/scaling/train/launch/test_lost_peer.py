"""Who cannot go on alone says why and leaves at once; who is slow is named."""

import os
import socket
import subprocess
import sys
import threading

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.train.launch import supervisor as restarts
from scaling.train.launch.distributed import process_name
from scaling.train.launch.lost_peer import abort_on_lost_peer, is_lost_peer
from scaling.train.launch.stopping import NotFinite
from scaling.train.launch.supervisor import lost_peer_message, run_with_restarts
from scaling.train.monitor import stragglers as hosts
from scaling.train.monitor.stragglers import SLOW, Look, host_words

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


# The slow host

SECONDS = st.floats(1e-4, 1e3)
LOOKS = st.integers(2, 6).flatmap(
    lambda n: st.builds(
        lambda compute, data, step: Look(tuple(compute), tuple(data), step),
        st.lists(SECONDS, min_size=n, max_size=n),
        st.lists(st.floats(0, 1), min_size=n, max_size=n),
        SECONDS,
    )
)


@given(LOOKS)
def test_the_slowest_is_never_faster_than_the_others(look):
    assert look.slowdown >= 1
    assert look.own[look.slowest] == max(look.own)


@given(LOOKS, st.randoms())
def test_the_order_of_the_hosts_does_not_matter(look, random):
    order = list(range(len(look.own)))
    random.shuffle(order)
    pick = lambda values: tuple(values[i] for i in order)
    other = Look(pick(look.compute), pick(look.data), look.step_time)
    assert other.slowdown == pytest.approx(look.slowdown)


@given(SECONDS, st.integers(2, 9))
def test_equal_hosts_are_not_called_slow(seconds, count):
    look = Look((seconds,) * count, (0.0,) * count, seconds)
    assert look.slowdown == 1 and host_words(look, ["node"] * count) is None


@pytest.mark.parametrize(
    "look",
    [
        Look((1e-3, 2e-3, 1e-3), (0.0, 0.0, 0.0), 0.5),  # its chip
        Look((1e-3, 1e-3, 1e-3), (0.0, 0.4, 0.0), 0.5),  # its data
    ],
)
def test_a_host_with_slow_devices_or_slow_data_is_named(look):
    said = host_words(look, ["node0", "node1", "node2"])
    assert "process 1 on node1" in said and f"{look.slowdown:.2f} times" in said
    assert look.slowdown >= SLOW


def test_one_process_looks_at_itself():
    """Gathering is jax's; what is timed and told is ours."""
    found = hosts.Hosts()
    found.step(0.5, 0.1)
    found.step(1.5, 0.3)
    look = found.look()
    assert found.names == [socket.gethostname()[: hosts.NAME_BYTES]]
    assert look.step_time == 1.0 and look.data == (pytest.approx(0.2),)
    assert len(look.compute) == 1 and look.compute[0] > 0
