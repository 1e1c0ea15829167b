"""Up and down: whatever fails, nothing is left behind and nothing foreign is touched."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.testbed import build
from scaling.testbed.build import HostsFile, Interrupted, down, missing, steps, up
from scaling.testbed.machine import CommandFailed, write_hosts
from scaling.testbed.plan import TestbedConfig
from scaling.testbed.state import Record, read_state, write_state

ROOT = Path(__file__).resolve().parents[3]
LAB = TestbedConfig("lab", "0123abcd", hosts=2, devices=2, bandwidth=125_000_000)


@pytest.fixture(scope="session")
def fresh(new_system):
    """Makes a system with things in it that are not ours, in a folder that goes with `with`."""

    @contextmanager
    def make():
        with tempfile.TemporaryDirectory() as folder:
            system = new_system(Path(folder))
            (system.folder / "netns" / "vpn").touch()
            (system.folder / "netns" / "scaling-lab-ffffffff-host0").touch()
            system.running["vpn"] = {7}
            yield system

    return make


def test_up_makes_all_and_down_leaves_the_system_as_it_was(system, testbed):
    before = system.files()
    up(testbed, system.machine, system.states)
    assert missing(testbed, system.machine) == []
    assert read_state("lab", system.states) == Record(testbed, complete=True)
    text = system.machine.hosts_file(testbed.host_namespaces[1]).read_text()
    assert f"10.77.0.2 host1 {socket.gethostname()}" in text
    removed = down(testbed, system.machine, system.states)
    assert system.files() == before
    files = {str(system.machine.hosts_file(name)) for name in testbed.host_namespaces}
    assert {line.split()[-1] for line in removed} == files | set(testbed.namespaces)
    assert down(testbed, system.machine, system.states) == []


def test_down_ends_processes_before_it_removes_their_namespace(system, testbed):
    up(testbed, system.machine, system.states)
    host = testbed.host_namespaces[1]
    system.running[host] = {41, 42}
    system.deaf = {42}
    removed = down(testbed, system.machine, system.states)
    assert [f"process {pid} in {host}" in removed for pid in (41, 42)] == [True, True]
    assert system.signals == [(41, signal.SIGTERM), (42, signal.SIGTERM), (42, signal.SIGKILL)]
    last = max(i for i, c in enumerate(system.calls) if c[1:] == ("netns", "pids", host))
    assert system.calls.index(("ip", "netns", "del", host)) > last


@given(st.sets(st.integers(0, 60), max_size=12))
def test_whatever_fails_and_when_a_later_down_finishes_it(fresh, fails):
    """Up, and the removal after it, and a first down may all fail at any commands."""
    with fresh() as system:
        before, system.fails = system.files(), fails
        try:
            up(LAB, system.machine, system.states)
            assert missing(LAB, system.machine) == []
            down(LAB, system.machine, system.states)
        except InputError as error:
            assert "no such luck" in str(error)
            if system.files() != before:  # then the record of what is left is there
                system.fails = set()
                down(read_state("lab", system.states).testbed, system.machine, system.states)
        assert system.files() == before
        assert system.running == {"vpn": {7}} and system.signals == []


@given(st.integers(0, len(steps(LAB, "box"))))
def test_down_removes_what_a_killed_up_has_made(fresh, made):
    with fresh() as system:
        before = system.files()
        write_state(LAB, system.states)
        for step in steps(LAB, "box")[:made]:
            if isinstance(step, HostsFile):
                write_hosts(system.machine, step.namespace, step.text)
            else:
                system.machine.run(step)
        down(LAB, system.machine, system.states)
        assert system.files() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_is_made_removes_it_again(system, testbed, number):
    before, run = system.files(), system.run

    def signalled(words):
        if len(system.calls) == 6:
            os.kill(os.getpid(), number)
        return run(words)

    system.run = signalled
    with pytest.raises(Interrupted, match=signal.Signals(number).name) as stop:
        up(testbed, system.machine, system.states)
    assert stop.value.number == number
    assert system.files() == before


@pytest.mark.parametrize("where", ["netns", "etc"])
def test_a_foreign_thing_of_the_same_name_is_refused_and_left_alone(system, testbed, where):
    (system.folder / where / testbed.host_namespaces[1]).mkdir(parents=True)
    before = system.files()
    with pytest.raises(InputError, match="there already and not of this testbed"):
        up(testbed, system.machine, system.states)
    assert system.files() == before and system.calls == []


def test_a_second_testbed_of_a_name_is_refused_and_the_first_stays(system, testbed):
    up(testbed, system.machine, system.states)
    before = system.files()
    second = TestbedConfig("lab", "99999999", 3, 1, 125_000_000)
    with pytest.raises(InputError, match="already.*scaling testbed down --name lab"):
        up(second, system.machine, system.states)
    assert system.files() == before


def at_once(*functions):
    """Runs them in threads; the errors of those that raised InputError."""

    def noted(function):
        try:
            function()
        except InputError as error:
            errors.append(str(error))

    errors: list[str] = []
    threads = [threading.Thread(target=noted, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("number", [0, 5])
def test_a_down_that_comes_while_up_works_removes_all_of_it(system, testbed, number, monkeypatch):
    """Number 0 is before the first step, when there is a record and nothing else."""
    before, made = system.files(), build.steps(testbed, "box")
    late = threading.Thread(
        target=lambda: at_once(lambda: down(testbed, system.machine, system.states))
    )

    def slowly(*_):
        for i, step in enumerate(made):
            if i == number:
                late.start()
                late.join(0.3)  # if it did not wait for `up`, it would be through by now
            yield step

    monkeypatch.setattr(build, "steps", slowly)
    up(testbed, system.machine, system.states)
    late.join()
    assert system.files() == before


def test_of_testbeds_made_at_once_under_one_name_one_is_there(system):
    testbeds = [TestbedConfig("lab", f"{i:08x}", 2, 1, 125_000_000) for i in range(6)]
    ups = [lambda b=b: up(b, system.machine, system.states) for b in testbeds]
    errors = at_once(*ups)
    assert len(errors) == 5 and all("already" in error for error in errors)
    there = read_state("lab", system.states).testbed
    assert set(os.listdir(system.machine.namespaces)) == set(there.namespaces)
    assert set(os.listdir(system.machine.settings)) == set(there.host_namespaces)
    assert os.listdir(system.states) == ["lab.json"]


def test_a_late_down_of_an_earlier_testbed_keeps_the_one_that_has_its_name(system, testbed):
    second = TestbedConfig("lab", "99999999", 2, 1, 125_000_000)
    up(second, system.machine, system.states)
    before = system.files()
    assert down(testbed, system.machine, system.states) == []
    assert system.files() == before and read_state("lab", system.states).testbed == second


@pytest.mark.parametrize("act", ["up", "down"])
def test_killed_at_any_touch_of_a_file_a_later_down_removes_all(act, tmp_path):
    """See crashes.py."""
    words = [sys.executable, str(Path(__file__).with_name("crashes.py")), act, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 9  # 3 namespaces, 2 files in 2 folders, theirs, a record


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Error: Specified qdisc kind is unknown.", "sch_netem"),
        ("Error: Unknown device type.", "veth"),
        ("RTNETLINK answers: Operation not permitted", "CAP_NET_ADMIN"),
        ("something new", "refuses"),
    ],
)
def test_the_kernel_s_words_are_explained(system, testbed, said, hint):
    def refusing(words):
        if words[0] == "tc":
            raise CommandFailed(said)
        return type(system).run(system, words)

    system.run = refusing
    with pytest.raises(InputError, match=f"{said}.*{hint}"):
        up(testbed, system.machine, system.states)
