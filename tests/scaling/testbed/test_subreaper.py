"""One command and all that descends from it: exit codes, signals, the lifeline, parents."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.testbed import subreaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="testbeds are made of Linux")
DEADLINE = 30  # seconds for something to happen on a busy machine


@pytest.fixture
def keep():
    """Starts a subreaper of shell text; its output can be read, and its stdin is the lifeline."""
    started = []

    def keep(text, **more):
        words = [sys.executable, "-I", "-S", subreaper.__file__, "sh", "-c", text]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(words, **pipes, **more))
        return started[-1]

    yield keep
    for process in started:
        process.stdin.close()
        process.wait(DEADLINE)
        process.stdout.close()


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_command_s(keep, code):
    assert keep(f"exit {code}").wait(DEADLINE) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_an_end_by_a_signal_is_told_as_shells_do(keep, number):
    assert keep(f"ulimit -c 0; kill -{int(number)} $$").wait(DEADLINE) == 128 + number


def test_the_command_does_not_see_the_lifeline(keep):
    """It reads nothing, at once; and is a session of its own, so that Ctrl-C does not reach it."""
    process = keep(
        'read line || echo nothing; [ "$(cut -d " " -f 6 /proc/$$/stat)" = $$ ] && echo own'
    )
    assert process.stdout.read() == "nothing\nown\n"


@pytest.mark.parametrize("number", subreaper.PASSED_ON)
def test_signals_are_passed_on_every_time(keep, number):
    name = signal.Signals(number).name.removeprefix("SIG")
    loop = "while :; do sleep 0.02; done"
    process = keep(f"trap 'n=$((n + 1)); echo $n; [ $n = 3 ] && exit 5' {name}; echo 0; {loop}")
    for line in ("0\n", "1\n", "2\n"):
        assert process.stdout.readline() == line
        process.send_signal(number)
    assert process.wait(DEADLINE) == 5


def test_a_signal_before_the_keeper_is_ready_waits(keep):
    """The job blocks signals while it starts a subreaper; so none can end it before it listens."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, subreaper.PASSED_ON)
    try:
        process = keep("sleep 60")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process.terminate()
    assert process.wait(DEADLINE) == 128 + signal.SIGTERM  # -15: the subreaper's own


def test_the_command_blocks_no_signals(keep):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, subreaper.PASSED_ON)
    try:
        process = keep("grep SigBlk /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert int(process.stdout.read().split()[1], 16) == 0


def test_where_the_lifeline_closes_all_is_killed(keep):
    process = keep("trap '' TERM INT; setsid sleep 60 & echo up; wait; wait")
    assert process.stdout.readline() == "up\n"
    process.stdin.close()
    assert process.wait(DEADLINE) == 128 + signal.SIGKILL
    assert process.stdout.read() == ""  # nobody is left who could write


def test_orphans_that_end_are_waited_for_at_once(keep):
    """They are no zombies until the command ends: a long run may leave thousands."""
    process = keep("for i in 1 2 3; do (: & echo $!); done; echo up; sleep 60")
    pids = [int(process.stdout.readline()) for _ in range(3)]
    assert process.stdout.readline() == "up\n"
    deadline = time.monotonic() + DEADLINE
    while any(subreaper.parent(str(pid)) == process.pid for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_children_are_those_not_waited_for_and_no_grandchildren(keep):
    process = keep("echo up; sleep 60")
    assert process.stdout.readline() == "up\n"
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # ended, and keeps its pid
    found = subreaper.children()
    assert {process.pid, ended.pid} <= set(found)
    assert all(subreaper.parent(str(pid)) == os.getpid() for pid in found)
    ended.wait()
    assert ended.pid not in subreaper.children()


def test_a_process_that_is_gone_has_no_parent(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert subreaper.parent(str(ended.pid)) is None


@given(st.text(st.characters(codec="latin-1", exclude_characters="/\0"), min_size=1, max_size=15))
def test_a_parent_is_found_whatever_the_process_is_called(name):
    """proc(5) has the name before the parent's pid, in brackets, and may hold some itself."""
    own_name = Path("/proc/self/comm")
    before = own_name.read_bytes().removesuffix(b"\n")
    try:
        own_name.write_bytes(name.encode())
        assert subreaper.parent("self") == os.getppid()
    finally:
        own_name.write_bytes(before)


def test_an_old_kernel_is_an_error_and_starts_nothing(monkeypatch):
    class Old:
        def prctl(self, *_):
            return -1

    monkeypatch.setattr(subreaper.ctypes, "CDLL", lambda *_, **__: Old())
    with pytest.raises(OSError, match="PR_SET_CHILD_SUBREAPER"):
        subreaper.adopt_orphans()
