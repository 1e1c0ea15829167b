"""Up and down: whatever fails, nothing is left behind and nothing foreign is touched."""

import os
import signal
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshes.errors import InputError
from scaling.testbed.build import Interrupted, _make, down, missing, up
from scaling.testbed.machine import MARK, CommandFailed
from scaling.testbed.plan import Bed
from scaling.testbed.state import read_state, write_state
from scaling.testbed.steps import Command, Namespace, steps

LAB = Bed("lab", "0123abcd", hosts=2, devices=2, bandwidth=125_000_000)
COMMANDS = [s for s in steps(LAB, "box") if isinstance(s, Command | Namespace)]


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


def test_up_makes_all_and_down_leaves_the_system_as_it_was(system, bed):
    before = system.files()
    up(bed, system.machine, system.states)
    assert missing(bed, system.machine) == []
    assert read_state("lab", system.states) == bed
    assert "10.77.0.2 host1" in system.machine.hosts_file(bed.host_namespaces[0]).read_text()
    removed = down(bed, system.machine, system.states)
    assert system.files() == before
    names = [*bed.namespaces, *(str(system.machine.hosts_file(n)) for n in bed.host_namespaces)]
    assert [line.split()[-1] for line in removed] == names


def test_down_ends_processes_before_it_removes_their_namespace(system, bed):
    up(bed, system.machine, system.states)
    host = bed.host_namespaces[1]
    system.running[host] = {41, 42}
    system.deaf = {42}
    removed = down(bed, system.machine, system.states)
    assert [f"process {pid} in {host}" in removed for pid in (41, 42)] == [True, True]
    assert system.signals == [(41, signal.SIGTERM), (42, signal.SIGTERM), (42, signal.SIGKILL)]
    last = max(i for i, c in enumerate(system.calls) if c[1:] == ("netns", "pids", host))
    assert system.calls.index(("ip", "netns", "del", host)) > last


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_refused_step_leaves_nothing_behind(fresh, number):
    with fresh() as system:
        before, system.fails = system.files(), {number}
        with pytest.raises(InputError, match="no such luck.*nothing is left behind"):
            up(LAB, system.machine, system.states)
        assert system.files() == before
        assert system.running == {"vpn": {7}}


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
                down(read_state("lab", system.states), system.machine, system.states)
        assert system.files() == before
        assert system.running == {"vpn": {7}} and system.signals == []


@given(st.integers(0, len(steps(LAB, "box"))))
def test_down_removes_what_a_killed_up_has_made(fresh, made):
    with fresh() as system:
        before = system.files()
        write_state(LAB, system.states)
        for step in steps(LAB, "box")[:made]:
            _make(step, system.machine)
        down(LAB, system.machine, system.states)
        assert system.files() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_is_made_removes_it_again(system, bed, number):
    before, run = system.files(), system.run

    def signalled(words):
        if len(system.calls) == 6:
            os.kill(os.getpid(), number)
        return run(words)

    system.run = signalled
    with pytest.raises(Interrupted, match=signal.Signals(number).name) as stop:
        up(bed, system.machine, system.states)
    assert stop.value.number == number
    assert system.files() == before


def test_any_other_crash_removes_it_again_too(system, bed):
    before, run = system.files(), system.run

    def crashing(words):
        if len(system.calls) == 9:
            system.calls.append(())
            raise MemoryError
        return run(words)

    system.run = crashing
    with pytest.raises(MemoryError):
        up(bed, system.machine, system.states)
    assert system.files() == before


@pytest.mark.parametrize("where", ["netns", "etc"])
def test_a_foreign_thing_of_the_same_name_is_refused_and_left_alone(system, bed, where):
    (system.folder / where / bed.host_namespaces[1]).mkdir(parents=True)
    before = system.files()
    with pytest.raises(InputError, match="there already and not of this testbed"):
        up(bed, system.machine, system.states)
    assert system.files() == before and system.calls == []


def test_a_hosts_file_that_somebody_else_wrote_is_left_alone(system, bed):
    up(bed, system.machine, system.states)
    path = system.machine.hosts_file(bed.host_namespaces[0])
    path.write_text("10.0.0.1 elsewhere\n")
    with pytest.raises(InputError, match="remove it by hand"):
        down(bed, system.machine, system.states)
    assert path.read_text() == "10.0.0.1 elsewhere\n"
    assert read_state("lab", system.states) == bed  # not forgotten while something is left
    path.unlink()
    assert down(bed, system.machine, system.states) == [f"file {path}"]


def test_a_second_testbed_of_a_name_is_refused_and_the_first_stays(system, bed):
    up(bed, system.machine, system.states)
    before = system.files()
    second = Bed("lab", "99999999", 3, 1, 125_000_000)
    with pytest.raises(InputError, match="already.*scaling testbed down --name lab"):
        up(second, system.machine, system.states)
    assert system.files() == before


def test_testbeds_of_two_names_are_apart(system, bed):
    other = Bed("other", "99999999", 3, 1, 125_000_000)
    up(bed, system.machine, system.states)
    with_one = system.files()
    up(other, system.machine, system.states)
    down(other, system.machine, system.states)
    assert system.files() == with_one


@pytest.mark.parametrize("there", [True, False])
def test_the_settings_folder_stays_if_it_was_there_before(system, bed, there):
    if there:
        system.machine.settings.mkdir()
    up(bed, system.machine, system.states)
    assert (system.machine.settings / MARK).exists() != there
    down(bed, system.machine, system.states)
    assert system.machine.settings.exists() == there


def test_the_hosts_know_this_machine_s_name(system, bed):
    up(bed, system.machine, system.states)
    text = system.machine.hosts_file(bed.host_namespaces[1]).read_text()
    assert f"10.77.0.2 host1 {socket.gethostname()}" in text


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Error: Specified qdisc kind is unknown.", "sch_netem"),
        ("Error: Unknown device type.", "veth"),
        ("RTNETLINK answers: Operation not permitted", "CAP_NET_ADMIN"),
        ("something new", "refuses"),
    ],
)
def test_the_kernel_s_words_are_explained(system, bed, said, hint):
    def refusing(words):
        if words[0] == "tc":
            raise CommandFailed(said)
        return type(system).run(system, words)

    system.run = refusing
    with pytest.raises(InputError, match=f"{said}.*{hint}"):
        up(bed, system.machine, system.states)
