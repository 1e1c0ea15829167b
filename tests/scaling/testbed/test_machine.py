"""The system: what it lacks is said, commands that fail are told apart, processes end."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from scaling.meshes.errors import InputError
from scaling.testbed import machine
from scaling.testbed.machine import (
    CommandFailed,
    Machine,
    end_processes,
    exclusive_lock,
    present_machine,
    processes,
    remove_hosts,
    run,
    write_hosts,
)

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 300  # seconds for something to happen on a busy machine


def test_without_root_it_is_said(monkeypatch):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="needs root: use sudo"):
        present_machine()


@pytest.mark.parametrize(("tool", "package"), [("tc", "iproute2"), ("unshare", "util-linux")])
def test_without_a_tool_its_package_is_named(monkeypatch, tool, package):
    monkeypatch.setattr(machine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        machine.shutil, "which", lambda name, path: None if name == tool else f"/sbin/{name}"
    )
    with pytest.raises(InputError, match=f"'{tool}'.*apt-get install {package}"):
        present_machine()


def test_a_command_s_output_or_its_complaint_comes_back():
    assert run((sys.executable, "-c", "print(3)")) == "3\n"
    code = "import sys; print('not\\n this', file=sys.stderr); sys.exit(2)"
    with pytest.raises(CommandFailed, match="not this"):
        run((sys.executable, "-c", code))
    with pytest.raises(CommandFailed, match="exit code 3"):
        run((sys.executable, "-c", "import sys; sys.exit(3)"))
    with pytest.raises(CommandFailed, match="no-such-command"):
        run(("no-such-command",))


def test_a_command_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(machine, "PATIENCE", 0.1)
    with pytest.raises(CommandFailed, match="timed out"):
        run((sys.executable, "-c", "import time; time.sleep(9)"))


def test_ctrl_c_does_not_reach_a_command():
    code = "import os; print(os.getsid(0) == os.getpid())"
    assert run((sys.executable, "-c", code)) == "True\n"


def test_the_hosts_file_is_not_written_over(system):
    write_hosts(system.machine, "a", "first\n")
    with pytest.raises(CommandFailed, match="File exists"):
        write_hosts(system.machine, "a", "second\n")
    assert system.machine.hosts_file("a").read_text() == "first\n"


def test_a_folder_with_something_else_in_it_is_not_removed(system):
    write_hosts(system.machine, "a", "first\n")
    other = system.machine.settings / "a" / "resolv.conf"
    other.write_text("nameserver 10.0.0.1\n")
    with pytest.raises(CommandFailed, match="cannot remove"):
        remove_hosts(system.machine, "a")
    assert other.exists()
    write_hosts(system.machine, "b", "second\n")
    assert remove_hosts(system.machine, "b") and other.exists()
    other.unlink()
    assert remove_hosts(system.machine, "a") and not system.machine.settings.exists()
    assert not remove_hosts(system.machine, "a")


def test_this_process_is_never_among_those_to_end(system):
    system.machine.run(("ip", "netns", "add", "a"))
    system.running["a"] = {os.getpid(), 5}
    assert processes(system.machine, "a") == [5]


def test_processes_that_cannot_be_ended_are_named(system):
    system.machine.run(("ip", "netns", "add", "a"))
    system.running["a"] = {5}
    undying = Machine(system.run, lambda pid, number: None, grace=0.0)
    with pytest.raises(CommandFailed, match=r"processes \[5\] in a do not end"):
        end_processes(undying, "a")


class Clock:
    """Time passes while one sleeps, and at no other time."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_processes_started_while_others_are_killed_are_killed_too(system, monkeypatch):
    """The first three that are killed have just started another one, which no list had."""
    system.machine.run(("ip", "netns", "add", "a"))
    system.running["a"] = {5}
    monkeypatch.setattr(machine, "time", Clock())

    def kill(pid, number):
        if number == signal.SIGKILL:
            system.running["a"] = {pid + 1} if pid < 8 else set()

    assert end_processes(Machine(system.run, kill), "a") == [5]
    assert system.running["a"] == set()


def test_a_process_is_asked_to_end_once(system, monkeypatch):
    """`scaling train` saves at the first SIGTERM and ends at once at the second."""
    system.machine.run(("ip", "netns", "add", "a"))
    system.running["a"], looks, signals = {5}, iter(range(4)), []
    monkeypatch.setattr(machine, "time", Clock())

    def run(words):
        if next(looks, None) is None:
            system.running["a"].clear()
        return system.run(words)

    end_processes(Machine(run, lambda *told: signals.append(told)), "a")
    assert signals == [(5, signal.SIGTERM)]


def test_the_lock_lasts_as_long_as_a_command_of_one_who_was_killed(system):
    """Such as `ip netns add`: a `down` that did not wait for it would miss what it makes."""
    code = f"""
        import sys
        from pathlib import Path
        from scaling.testbed.machine import Machine, exclusive_lock, run
        with exclusive_lock(Machine(run, namespaces=Path({str(system.machine.namespaces)!r}))):
            run(("sh", "-c", "touch {system.folder}/up; read line"))"""
    words = [sys.executable, "-c", textwrap.dedent(code)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen(words, stdin=subprocess.PIPE, env=environment)
    _wait_for((system.folder / "up").exists)
    killed.kill()
    killed.wait()
    assert not _is_free(system.folder)
    killed.stdin.close()  # now `read` ends
    _wait_for(lambda: _is_free(system.folder))


def _is_free(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(handle)


def _wait_for(fact):
    deadline = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_lock_leaves_nothing_behind_and_needs_its_folder(system, tmp_path):
    before = system.files()
    with exclusive_lock(system.machine):
        pass
    assert system.files() == before
    nowhere = Machine(system.run, namespaces=tmp_path / "no" / "netns")
    with (
        pytest.raises(InputError, match="cannot open .*/no: No such file"),
        exclusive_lock(nowhere),
    ):
        pass
