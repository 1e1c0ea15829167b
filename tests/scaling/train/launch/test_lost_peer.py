"""A process that cannot go on alone says why and ends at once."""

import os

import jax
import pytest

from scaling.meshes.errors import InputError
from scaling.train.launch.lost_peer import abort_on_lost_peer, is_lost_peer
from scaling.train.launch.stopping import NotFinite


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
