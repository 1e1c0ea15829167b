"""One job at a time writes to a run folder."""

import os
import subprocess
import sys
import time

import jax
import pytest

from meshes.errors import InputError
from scaling.train import folder as module
from scaling.train.agreement import different, found_by_all, said_by_first
from scaling.train.folder import LOCK, sole_writer

HOLDS = """
import sys, time
from pathlib import Path
from scaling.train.folder import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    with sole_writer(tmp_path):
        with pytest.raises(InputError, match=f"being written by process {os.getpid()} on .*wait"):
            with sole_writer(tmp_path):
                raise AssertionError("both write")
    with sole_writer(tmp_path):
        pass


def test_a_writer_that_was_killed_holds_nothing(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"process {writer.pid} on"):
            sole_writer(tmp_path).__enter__()
    finally:
        writer.kill()
        writer.communicate()
    deadline = time.monotonic() + 10
    while True:  # the kernel lets go soon after the process is gone
        try:
            with sole_writer(tmp_path):
                break
        except InputError:
            assert time.monotonic() < deadline
    assert f"process {os.getpid()} on" in (tmp_path / LOCK).read_text()


def test_where_files_cannot_be_locked_everybody_may_write(tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", refuse)
    with sole_writer(tmp_path), sole_writer(tmp_path):
        pass


def test_other_processes_hear_what_the_first_one_found(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(module, "said_by_first", lambda mine: False)
    with pytest.raises(InputError, match="being written by another run"):
        sole_writer(tmp_path).__enter__()
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("verdict", [True, False])
def test_a_process_alone_agrees_with_itself(verdict):
    assert said_by_first(verdict) is verdict and found_by_all(verdict) is verdict
    assert different([1, 2]) == []
