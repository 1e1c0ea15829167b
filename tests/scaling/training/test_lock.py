"""Where files cannot be locked, a file with a heartbeat keeps the second writer out."""

import errno
import itertools
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.training.run_folder import lock
from scaling.training.run_folder.lock import HELD, locked

pytestmark = pytest.mark.filterwarnings("ignore:the file system of the run folder has no locks")
NO_LOCKS = """
import errno, fcntl, sys, time, warnings
from pathlib import Path
def refuse(file, how): raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refuse
warnings.simplefilter("ignore")
from scaling.training.run_folder.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def no_locks(monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    monkeypatch.setattr(lock, "OTHER_HOST_WAIT", 0.5)


def far(name="process 7 on elsewhere"):
    return f"{name}\nanother boot pid:[1]\n"


def test_a_second_writer_is_kept_out_and_told_who_the_first_is(tmp_path):
    with pytest.warns(UserWarning, match=r"has no locks \(No locks available\)"):
        held = locked(tmp_path)
        lost = held.__enter__()
    with pytest.raises(InputError, match=f"another run, process {os.getpid()} on .*delete {HELD}"):
        locked(tmp_path).__enter__()
    assert lost() == ""
    held.__exit__(None, None, None)
    assert not (tmp_path / HELD).exists()
    with locked(tmp_path) as lost:
        assert lost() == ""


def test_a_killed_process_of_this_host_is_followed_at_once(tmp_path, capsys):
    writer = subprocess.Popen(
        [sys.executable, "-c", NO_LOCKS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"process {writer.pid} on {socket.gethostname()}"):
            locked(tmp_path).__enter__()
    finally:
        writer.kill()
        writer.communicate()
    with locked(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / HELD).read_text()
    assert f"process {writer.pid} on {socket.gethostname()} is gone" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    """Called once for each wait; by this clock a lock that does not beat is waited for."""
    waits, now = [], [0.0]

    def sleep(seconds):
        now[0] += seconds
        for wait in waits:
            wait()

    monkeypatch.setattr(lock, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(lock, "OTHER_HOST_WAIT", 2 * lock.STALE)
    return waits


def test_a_lock_of_another_host_is_taken_over_when_its_date_stands_still(tmp_path, clock, capsys):
    (tmp_path / HELD).write_text(far())
    with locked(tmp_path) as lost:
        assert lost() == ""
    assert "process 7 on elsewhere is gone: its" in capsys.readouterr().err


def test_a_lock_whose_date_changes_is_not_taken_over(tmp_path, clock):
    """However old the date is by our clock."""
    file, dates = tmp_path / HELD, itertools.count(1)
    file.write_text(far())
    clock.append(lambda: os.utime(file, (next(dates),) * 2))
    with pytest.raises(InputError, match="process 7 on elsewhere"):
        locked(tmp_path).__enter__()
    assert file.read_text() == far() and next(dates) * lock.POLL > lock.STALE


def test_the_date_is_set_anew_until_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.01)
    with locked(tmp_path):
        for _ in range(3):
            os.utime(tmp_path / HELD, (1, 1))
            while (tmp_path / HELD).stat().st_mtime == 1:
                time.sleep(0.01)


def test_who_has_lost_the_lock_finds_out_and_leaves_the_other_s(tmp_path):
    with locked(tmp_path) as lost:
        (tmp_path / HELD).unlink()
        assert "No such file" in lost()
        (tmp_path / HELD).write_text(far())
        assert lost() == f"its {HELD} is another one"
    assert (tmp_path / HELD).read_text() == far()


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_a_lock_says_of_its_process_it_is_one_that_may_live(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("lock") / HELD
    file.write_bytes(text)
    assert lock._Claim(file).attempt()
    assert file.read_bytes() == text


@pytest.mark.parametrize("name", ["process 99999999999999999999 on x", "process 0 on x", "process"])
def test_numbers_that_no_process_has_are_not_gone_by_mistake(name):
    assert not lock._is_gone(name, lock._process_numbers())
