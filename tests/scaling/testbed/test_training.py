"""Training on hosts that can be lost: the same losses, an end within a minute, and going on."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from scaling.run import save_run
from scaling.testbed.job import host_environment, run_job
from scaling.testbed.machine import processes
from scaling.training.monitor.hosts import LOOKS
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from tests.scaling.training.fakes import train

pytestmark = pytest.mark.slow  # they change the machine's network, and take its time
ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 600  # seconds for processes to come up, compile and end on a busy machine
PROMISE = 60  # seconds within which the others end
PORT = 29_400
RTOL = 1e-4  # of losses on several hosts, in fp32
STEPS, SAVED, KILLED = 30, 5, 12  # at the end; between checkpoints; done when somebody is killed


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def alone(toy, prepare, tmp_path_factory):
    """The losses of the run on one host, by step."""
    folder = tmp_path_factory.mktemp("alone")
    train(*prepare(toy(mesh={"fsdp": 4}, steps=STEPS)), Options(folder))
    return losses(folder)


@pytest.fixture
def command(toy, tmp_path):
    """`scaling train` of that run on a mesh, as words."""

    def words(mesh, *more):
        file = tmp_path / "run.json"
        save_run(toy(steps=STEPS, checkpoint_every=SAVED), file)
        where = ["--run-dir", str(tmp_path / "run"), "--mesh", mesh]
        return [sys.executable, "-m", "scaling", "train", str(file), *where, *more]

    return words


def losses(folder):
    """Of each step, as it was written last."""
    return {line["step"]: line["loss"] for line in read_metrics(folder) if "loss" in line}


def looks_of(folder):
    """The lines of the comparisons of hosts."""
    return [line for line in read_metrics(folder) if "hosts_work_time" in line]


def start(testbed, words):
    """One process in every host, with nobody who watches over all of them."""
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *words],
            env=host_environment(testbed, index, PORT, os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, name in enumerate(testbed.host_namespaces)
    ]


def wait_until_done(folder, step):
    wait_until(lambda: (folder / "metrics.jsonl").exists() and step in losses(folder))


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def training_process(testbed, machine, host):
    """The one that trains, not the one beside it."""
    for pid in processes(machine, testbed.host_namespaces[host]):
        if b"-P\0-m\0scaling" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"nothing trains in host {host}")


def ends(children, seconds):
    """What each has printed; all have ended within the time."""
    deadline = time.monotonic() + seconds
    try:
        return [c.communicate(timeout=max(1, deadline - time.monotonic()))[0] for c in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()


@pytest.mark.parametrize(
    ("hosts", "devices", "mesh"),
    [(2, 2, "fsdp=4"), (2, 2, "data=2,tensor=2"), (4, 1, "data=2,fsdp=2")],
)
def test_hosts_train_like_one(make, machine, command, alone, tmp_path, hosts, devices, mesh):
    testbed = make(hosts=hosts, devices=devices)
    assert run_job(testbed, machine, command(mesh), os.environ) == 0
    assert losses(tmp_path / "run") == pytest.approx(alone, rel=RTOL)
    for other in range(1, hosts):
        theirs = read_metrics(tmp_path / "run" / f"process_{other}")
        times = {line["step"]: line["step_time"] for line in theirs if "loss" in line}
        assert list(times) == list(alone) and all(t > 0 for t in times.values())
    looks = looks_of(tmp_path / "run")
    assert looks[-1]["step"] == STEPS
    for look in looks:
        assert len(look["hosts_data_time"]) == len(look["hosts_work_time"]) == hosts


@contextmanager
def untouched(pid):
    yield


@contextmanager
def under_quota(pid):
    """A fifth of a core, anew every 100 ms, for a process: by the controller `cpu` of Linux."""
    old = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
    group = Path("/sys/fs/cgroup", "cpu" if old else "", f"scaling-test-{pid}")
    try:
        group.mkdir()
        limit = ("cpu.cfs_quota_us", "20000") if old else ("cpu.max", "20000 100000")
        (group / limit[0]).write_text(limit[1])
    except OSError as error:
        pytest.skip(f"no quota of CPU time can be set here: {error}")
    (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextmanager
def stopped_in_turns(pid):
    """Stopped for 80 ms, let go for 20 ms, and so on."""
    ended = threading.Event()

    def act():
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.08)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("slowed", [untouched, under_quota, stopped_in_turns])
def test_a_host_that_often_stands_still_is_named_and_a_sound_one_is_not(
    make, machine, command, tmp_path, slowed
):
    testbed, folder = make(hosts=2, devices=2), tmp_path / "run"
    longer = ("--steps", "1000000", "--set", "train.checkpoint_every=1000000")
    children = start(testbed, command("fsdp=4", *longer))
    wait_until_done(folder, KILLED)
    with slowed(training_process(testbed, machine, 1)):
        wanted = len(looks_of(folder)) + LOOKS + 3
        wait_until(lambda: len(looks_of(folder)) >= wanted)
    for child in children:
        child.terminate()
    said = ends(children, DEADLINE)[0]
    assert [child.returncode for child in children] == [0, 0], said
    assert ("slow host: process 1 " in said) == (slowed is not untouched), said
    assert "slow host: process 0 " not in said


@pytest.mark.parametrize(("hosts", "victim"), [(2, 0), (2, 1), (4, 2)])
def test_a_killed_host_ends_the_others_and_fewer_hosts_go_on(
    make, machine, command, alone, tmp_path, hosts, victim
):
    """Whether it is the coordinator or not, with the mesh made for half of the hosts."""
    folder, devices = tmp_path / "run", 4 // hosts
    testbed = make(hosts=hosts, devices=devices)
    children = start(testbed, command("fsdp=4"))
    wait_until_done(folder, KILLED)
    for pid in processes(machine, testbed.host_namespaces[victim]):
        os.kill(pid, signal.SIGKILL)
    said = ends(children, PROMISE)
    del said[victim]
    assert [child.returncode for child in children].count(1) == hosts - 1
    for text in said:
        assert "another process of the job has ended" in text, text
        assert "the same command with --resume goes on from it" in text
    fewer = make(name="fewer", hosts=hosts // 2, devices=devices)
    mesh = f"fsdp={fewer.hosts * devices}"
    assert run_job(fewer, machine, command(mesh, "--resume"), os.environ) == 0
    assert losses(folder) == pytest.approx(alone, rel=RTOL)


def test_a_host_without_its_network_ends_all_the_same(make, machine, command, tmp_path):
    """Nothing closes the connections: only silence tells."""
    testbed = make(hosts=2, devices=2)
    children = start(testbed, command("fsdp=4"))
    wait_until_done(tmp_path / "run", KILLED)
    shown = machine.run(("ip", "netns", "exec", testbed.host_namespaces[0], "ss", "-tlnH"))
    (place,) = {line.split()[3] for line in shown.splitlines() if f":{PORT} " in line}
    assert testbed.addresses[0] in place  # the coordinator: on no other interface
    machine.run(("ip", "-n", testbed.host_namespaces[1], "link", "set", "eth0", "down"))
    for text in ends(children, PROMISE):
        assert "cannot be reached" in text and "--resume" in text
    assert [child.returncode for child in children] == [1, 1]


@pytest.mark.parametrize(("hosts", "victim"), [(2, 0), (2, 1), (4, 2)])
def test_restarts_go_on_by_themselves_from_the_last_checkpoint(
    make, machine, command, alone, tmp_path, hosts, victim, capfd
):
    testbed, codes = make(hosts=hosts, devices=4 // hosts), []
    words = command("fsdp=4", "--restarts", "3")
    job = threading.Thread(
        target=lambda: codes.append(run_job(testbed, machine, words, os.environ))
    )
    job.start()
    wait_until_done(tmp_path / "run", KILLED)
    os.kill(training_process(testbed, machine, victim), signal.SIGKILL)
    job.join(DEADLINE)
    shown = capfd.readouterr()
    assert codes == [0], shown.err
    assert "restart 1 of 3" in shown.err
    assert "host0: resumed after step" in shown.err
    assert losses(tmp_path / "run") == pytest.approx(alone, rel=RTOL)
    last = [line for line in read_metrics(tmp_path / "run") if "loss" in line][-1]
    assert 0 < last["goodput"] < 1
