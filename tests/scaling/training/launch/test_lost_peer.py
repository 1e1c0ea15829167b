"""A process that cannot go on alone says why and ends at once."""

import os
import threading

import jax
import pytest

from scaling.meshes.errors import InputError
from scaling.training import launch
from scaling.training.checkpoint.checkpoints import CheckpointError
from scaling.training.launch.lost_peer import abort_on_lost_peer, end_with_peers, lost_peer
from scaling.training.launch.stopping import NotFinite


class Left(BaseException):
    """In place of the end of the process."""


class Saved:
    """Checkpoints of which the newest is step 40."""

    def __init__(self, run):
        self.folder = run / "checkpoints"
        (self.folder / "step_00000040").mkdir(parents=True)

    def finish(self, seconds):
        self.waited = seconds


@pytest.fixture
def leaving(monkeypatch, tmp_path):
    """As one of three processes: ends a block with an error; returns the exit code."""

    def end(code):
        raise Left(code)

    def left(error):
        with pytest.raises(Left) as caught, abort_on_lost_peer(Saved(tmp_path / "run")):
            raise error
        return caught.value.args[0]

    names = ["process 0 (a)", "process 1 (b)", "process 2 (c)"]
    monkeypatch.setattr(launch.lost_peer, "process_names", lambda: names)
    monkeypatch.setattr(jax, "process_count", lambda: 3)
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


def test_a_stop_that_all_come_to_is_left_to_all(leaving, tmp_path):
    with pytest.raises(NotFinite), abort_on_lost_peer(Saved(tmp_path)):
        raise NotFinite("step 3")


def test_a_process_alone_ends_as_it_always_did(tmp_path):
    with pytest.raises(ZeroDivisionError), abort_on_lost_peer(Saved(tmp_path)):
        raise ZeroDivisionError


def test_who_is_ended_by_the_watchdog_does_not_say_another_reason(leaving, monkeypatch, capsys):
    def waits(event):
        raise Left("for the watchdog")

    monkeypatch.setattr(launch.lost_peer.ENDING, "is_set", lambda: True)
    monkeypatch.setattr(threading.Event, "wait", waits)
    assert leaving(jax.errors.JaxRuntimeError("UNKNOWN: Gloo: closed")) == "for the watchdog"
    assert capsys.readouterr().err == ""


# As jaxlib 0.10.2 raises it of an array that is read on the host.
GLOO = "UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [10.0.0.2]:54950"


def test_a_peer_that_is_lost_before_the_steps_gives_no_traceback(leaving, capsys, tmp_path):
    (tmp_path / "checkpoints" / "step_00000040").mkdir(parents=True)
    with pytest.raises(Left), end_with_peers(tmp_path):
        raise ValueError(GLOO)
    said = capsys.readouterr().err
    assert "another process of the job has ended or cannot be reached: UNKNOWN: Gloo" in said
    assert "checkpoint of step 40" in said and "Traceback" not in said
    with pytest.raises(InputError, match="full"), end_with_peers(tmp_path):
        raise InputError("the disk is full")


# As jaxlib 0.10.2 writes them, three processes, of which number 1 was gone.
LATE = (
    "DEADLINE_EXCEEDED: Barrier timed out. Id: b1::0. This usually happens because a task "
    "triggered the barrier too early or too slowly. Please look at the task logs (both timed out "
    "and first task) to debug further.\n# of tasks that reached the barrier: 2/3.\nThe first task "
    "at the barrier: 2. Some timed out task names:\n1\n\n"
)
DEAD = (
    "INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: Task 1 heartbeat "
    "timeout. This indicates that the remote task has failed, got preempted, or crashed."
)
SILENT = (
    "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n1\nThe tasks "
    "have crashed."
)


@pytest.mark.parametrize("text", [LATE, DEAD, SILENT])
def test_a_checkpoint_that_waits_for_a_lost_peer_names_it(leaving, capsys, text):
    """Orbax calls every error of a barrier a timeout, which is an OSError, like a full disk."""
    waiting = TimeoutError(
        f"Timeout waiting at barrier 'b1'. The original error raised was: {text}"
    )
    waiting.__cause__ = jax.errors.JaxRuntimeError(text)
    error = CheckpointError("checkpoint of step 42 not saved in run: Timeout. Make room")
    error.__cause__ = waiting
    assert leaving(error) == 1
    said = capsys.readouterr().err
    assert "because process 1 (b) has ended or cannot be reached: " in said
    assert "Make room" not in said and "checkpoint of step 40" in said


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (
            jax.errors.JaxRuntimeError("INTERNAL: NCCL operation failed: remote process exited"),
            True,
        ),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), False),
        (RuntimeError("Connection closed by peer"), False),
        (ValueError(GLOO), True),
        (TimeoutError(f"Timeout waiting at barrier. The original error raised was: {DEAD}"), True),
        (TimeoutError("processes [1] have not summed their files"), False),
        (ValueError("UNIMPLEMENTED: this product"), False),
        (ValueError("the loss is UNKNOWN: why"), False),
    ],
)
def test_only_what_xla_reports_can_be_a_lost_peer(error, lost):
    assert lost_peer(error) is (error if lost else None)
