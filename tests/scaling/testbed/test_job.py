"""One process in every host: environment, output, ends. An `ip` that only starts them stands in."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.testbed.job import host_environment, run_job
from scaling.testbed.machine import CommandFailed, Machine
from scaling.testbed.plan import TestbedConfig
from scaling.training.launch.distributed import job_kind

PIDS = subprocess.run(["sh", "-c", "unshare --pid --fork --mount-proc true"], capture_output=True)
pytestmark = pytest.mark.skipif(PIDS.returncode != 0, reason="pid namespaces need Linux and root")
ROOT = Path(__file__).resolve().parents[3]
LAB = TestbedConfig("lab", "0123abcd", hosts=3, devices=2, bandwidth=125_000_000)
# Runs in each host before a failure: that one comes when the others can get its signal.
READY = "touch $AT/$JAX_PROCESS_ID; while [ $(ls $AT/[012] | wc -l) -lt 3 ]; do sleep 0.02; done; "
DEADLINE = 300  # s; a loaded machine is slow, and what waits here waits for longer


@pytest.fixture
def here(tmp_path):
    """Runs shell text in all hosts of LAB: (code), with a machine on which nothing is isolated."""
    (tmp_path / "ip").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    (tmp_path / "ip").chmod(0o755)
    (tmp_path / "netns").mkdir()
    for name in LAB.namespaces:
        (tmp_path / "netns" / name).touch()
    machine = Machine(lambda words: "4711\n", namespaces=tmp_path / "netns")
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AT": str(tmp_path)}

    def run(text, grace=DEADLINE):
        return run_job(LAB, machine, ["sh", "-c", text], environment, grace)

    run.machine, run.folder, run.environment = machine, tmp_path, environment
    return run


def test_each_host_has_its_number_and_the_first_one_s_address(here, capfd):
    """And no input to wait for."""
    text = "echo $JAX_PROCESS_ID of $JAX_NUM_PROCESSES at $JAX_COORDINATOR_ADDRESS"
    assert here(f"read line || {text}") == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == [f"host{i}: {i} of 3 at 10.77.0.1:4711" for i in range(3)]


def test_output_and_errors_keep_their_streams_and_every_line_its_host(here, capfd):
    here('for i in $(seq 200); do echo line $i; done; echo oops >&2; printf "no end"')
    out, err = capfd.readouterr()
    for host in ("host0", "host1", "host2"):
        own = [line for line in out.splitlines() if line.startswith(f"{host}: ")]
        assert own == [f"{host}: line {i}" for i in range(1, 201)] + [f"{host}: no end"]
    assert sorted(err.splitlines()) == [f"host{i}: oops" for i in range(3)]


@given(st.integers(0, 2), st.sampled_from(["SLURM_PROCID", "OMPI_COMM_WORLD_LOCAL_RANK"]))
def test_the_trainer_understands_the_environment(index, other):
    made = host_environment(LAB, index, 4711, {"PATH": "/bin", "HOME": "/root", other: "9"})
    assert made["PATH"] == f"{os.path.dirname(sys.executable)}:/bin:/usr/sbin:/sbin"
    assert job_kind(made) == "explicit"
    assert other not in made and made["HOME"] == "/root"
    assert (made["JAX_PROCESS_ID"], made["JAX_NUM_CPU_DEVICES"]) == (str(index), "2")


def test_the_first_failure_ends_the_others_and_is_the_exit_code(here):
    began = time.monotonic()
    assert here(READY + "[ $JAX_PROCESS_ID = 1 ] && exit 7; exec sleep 900") == 7
    assert time.monotonic() - began < DEADLINE


def test_an_end_by_a_signal_is_told_as_shells_do(here):
    assert here(READY + "[ $JAX_PROCESS_ID = 2 ] && kill -9 $$; exec sleep 900") == 128 + 9


def test_a_host_that_ends_well_leaves_the_others_running(here):
    assert here("[ $JAX_PROCESS_ID = 0 ] && exit 0; sleep 0.4; touch $AT/$JAX_PROCESS_ID") == 0
    assert (here.folder / "1").exists() and (here.folder / "2").exists()


def test_who_does_not_listen_is_killed(here):
    code = here('trap "" TERM; [ $JAX_PROCESS_ID = 0 ] && exit 5; while :; do sleep 0.1; done', 0.3)
    assert code == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_all_and_they_may_end_well(here, number):
    """As `scaling train` does: it saves and returns 0."""
    name = signal.Signals(number).name.removeprefix("SIG")
    text = f"""
        trap 'echo saved > $AT/saved$JAX_PROCESS_ID; exit 0' {name}
        touch $AT/up$JAX_PROCESS_ID
        while :; do sleep 0.05; done"""
    threading.Thread(target=_signal_when_up, args=(here.folder, [number]), daemon=True).start()
    assert here(textwrap.dedent(text)) == 0
    assert [(here.folder / f"saved{i}").exists() for i in range(3)] == [True] * 3


def test_a_second_signal_kills(here):
    text = 'trap "" TERM INT; touch $AT/up$JAX_PROCESS_ID; while :; do sleep 0.05; done'
    numbers = [signal.SIGTERM, signal.SIGINT]
    threading.Thread(target=_signal_when_up, args=(here.folder, numbers), daemon=True).start()
    assert here(text) == 128 + signal.SIGKILL


def _wait_until_up(folder):
    deadline = time.monotonic() + DEADLINE
    while not all((folder / f"up{i}").exists() for i in range(3)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)


def _signal_when_up(folder, numbers):
    _wait_until_up(folder)
    for number in numbers:
        os.kill(os.getpid(), number)
        time.sleep(0.3)


@pytest.fixture
def alive(tmp_path):
    """Whether a process is alive that opened $AT/alive for writing, or had it from its parent."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)

    def alive(patience=0.0):
        deadline = time.monotonic() + patience
        while True:
            try:
                if not os.read(reader, 4096):  # nobody could write any more
                    return False
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return True
                time.sleep(0.01)

    yield alive
    os.close(reader)


LEFT = {  # what a command may leave running when it ends
    "own-session": "setsid sleep 900 &",  # as the child of --restarts
    "orphan": "(setsid sh -c 'sleep 900 & exec sleep 900' &) ;",
    "deaf": "setsid sh -c 'trap \"\" TERM INT HUP; sleep 900; sleep 900' &",
    "forks-on": "setsid sh -c 'while :; do sleep 0.01 & done' &",
    "never-the-same-process": "hop() { (sleep 0.01; hop) & }; hop;",
}


@pytest.mark.parametrize("left", LEFT)
def test_no_child_of_a_child_is_left(here, alive, left):
    """Of all that held the pipe when the commands ended, and nobody else is hit."""
    bystander = subprocess.Popen(["setsid", "sleep", "900"], env=here.environment)
    try:
        assert here(f"exec 9>$AT/alive; {LEFT[left]} exit 0") == 0
        assert not alive()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_when_the_job_itself_is_killed_nothing_of_it_goes_on(here, alive):
    text = 'exec 9>$AT/alive; setsid sleep 900 & trap "" TERM; touch $AT/up$JAX_PROCESS_ID; wait'
    code = f"""
        from pathlib import Path
        from scaling.testbed.job import run_job
        from scaling.testbed.machine import Machine
        from scaling.testbed.plan import TestbedConfig
        machine = Machine(lambda words: "4711", namespaces=Path({str(here.folder / "netns")!r}))
        run_job({LAB!r}, machine, ["sh", "-c", {text!r}])"""
    words = [sys.executable, "-c", textwrap.dedent(code)]
    running = subprocess.Popen(words, env=here.environment | {"PYTHONPATH": str(ROOT)})
    _wait_until_up(here.folder)
    running.kill()
    assert running.wait(DEADLINE) == -signal.SIGKILL
    assert not alive(DEADLINE)


def test_when_the_testbed_is_taken_down_nothing_of_the_job_goes_on(here, alive):
    """One that `down` did not see, because it came between its look and its end."""

    def down():
        _wait_until_up(here.folder)
        for name in LAB.namespaces:
            (here.folder / "netns" / name).unlink()

    threading.Thread(target=down, daemon=True).start()
    text = 'exec 9>$AT/alive; trap "" TERM; touch $AT/up$JAX_PROCESS_ID; sleep 900'
    assert here(text) == 128 + signal.SIGKILL  # 0 if it came to its own end
    assert not alive(DEADLINE)


@pytest.mark.parametrize("command", [[], ["no-such-command"]])
def test_a_command_that_is_not_there_is_bad_input(here, command):
    with pytest.raises(InputError, match="no command.*run -- COMMAND"):
        run_job(LAB, here.machine, command, here.environment)


def test_a_host_that_cannot_be_entered_is_bad_input():
    def refuse(words):
        raise CommandFailed("setting the network namespace failed")

    with pytest.raises(InputError, match="cannot enter scaling-lab-0123abcd-host0"):
        run_job(LAB, Machine(refuse), ["true"])
