"""A training job on a testbed, one process of which is made to stand still."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scaling.testbed.build import down, up
from scaling.testbed.job import host_environment
from scaling.testbed.machine import Machine, processes
from scaling.testbed.plan import TestbedConfig, new_testbed
from scaling.training.launch.heartbeats import BEAT
from scaling.training.run_folder.metrics import read_metrics

PORT = 29_411
MINUTES = 0.4  # of the watchdog here, instead of the 5 that it would take
WARM = 25  # steps before the harm, after the first saves
DEADLINE = 900.0  # s for anything to happen, on a machine that is busy
# A message about a link names the address of a host and its process.
LINK = r"look at the link of [0-9.]* \(process {}\):"
# A network of its own for jax's coordinator, as clusters have one beside that of the collectives.
COORDINATION = "10.78.0"
SLEEPS, SPINS, KEEPS_LOCK = (signal.SIGRTMIN + n for n in (1, 2, 3))  # of site/sitecustomize.py


@dataclass(frozen=True)
class Case:
    """A disturbance of a host."""

    name: str
    host: int
    number: int | None = None  # the signal to its training process; None: its link stalls
    coordination: bool = True  # there is a network for the coordinator alone
    named: str = r"stuck: process {} "  # what must be said
    hosts: int = 2


CASES = {
    "sleeps": Case("sleeps in Python", 1, SLEEPS),
    "sleeps-0": Case("the first process sleeps", 0, SLEEPS),
    "spins": Case("spins in Python", 1, SPINS),
    "lock": Case("waits in C and keeps Python's lock", 1, KEEPS_LOCK),
    "lock-0": Case("the first process does", 0, KEEPS_LOCK),
    "stopped": Case("is stopped (SIGSTOP)", 1, signal.SIGSTOP),
    "stopped-0": Case("the first process is", 0, signal.SIGSTOP),
    "link": Case("its link stalls, that of the coordinator does not", 1, named=LINK, hosts=4),
    "links": Case("all its links stall", 1, coordination=False, named="cannot be reached"),
}


@dataclass(frozen=True)
class Outcome:
    """Seconds after the harm, and what was said."""

    case: Case
    noticed: float  # until a process, or its supervisor, said so
    ended: float  # until all attempts had ended
    resumed: float  # until the first new step
    said: str  # the line that names the process
    stack: bool  # the place in the code was said
    saved: int  # step of the checkpoint that it went on from
    lost: int  # steps that were made again


def tried(case: Case, machine: Machine, place: Path) -> Outcome:
    """Do it, and wait until the job trains again."""
    folder = place / "run"
    with _testbed(case, machine, place) as testbed, _job(case, testbed, place) as logs:
        _until(lambda: _last_step(folder) >= WARM, logs)
        time.sleep(2 * BEAT)  # those of the first steps are heard
        before = time.time()
        if case.number is None:
            port = f"port{case.host}"
            machine.run(("ip", "-n", testbed.switch, "link", "set", port, "nomaster"))
        else:
            os.kill(_training(testbed, machine, case.host), case.number)
        wanted = re.compile(case.named.format(case.host))
        _until(lambda: wanted.search(_text(logs)), logs)
        noticed, reached = time.time() - before, _last_step(folder)
        _until(lambda: all("; restart 1 of" in log.read_text() for log in logs), logs)
        ended = time.time() - before
        if case.number is None:
            machine.run(("ip", "-n", testbed.switch, "link", "set", port, "master", "bridge0"))
        _until(lambda: "resumed after step" in _text(logs), logs)
        again = int(re.findall(r"resumed after step (\d+)", _text(logs))[0])
        _until(lambda: _newest(folder) > before + ended, logs)
        resumed = _newest(folder) - before
    text = _text(logs)
    said = next(line for line in text.splitlines() if wanted.search(line))
    stack = "sitecustomize.py" in text or "loop.py" in text
    return Outcome(case, noticed, ended, resumed, said, stack, again, reached - again)


@contextmanager
def _testbed(case: Case, machine: Machine, place: Path) -> Iterator[TestbedConfig]:
    testbed = new_testbed("stuck", case.hosts, 1, "1Gbit")
    up(testbed, machine, place)
    try:
        if case.coordination:
            switch = ("ip", "-n", testbed.switch, "link")
            machine.run((*switch, "add", "bridge1", "type", "bridge"))
            machine.run((*switch, "set", "bridge1", "up"))
            for i, host in enumerate(testbed.host_namespaces):
                peer = ("peer", "name", "eth1", "netns", host)
                machine.run((*switch, "add", f"more{i}", "type", "veth", *peer))
                machine.run((*switch, "set", f"more{i}", "master", "bridge1", "up"))
                address = f"{COORDINATION}.{i + 1}/24"
                machine.run(("ip", "-n", host, "addr", "add", address, "dev", "eth1"))
                machine.run(("ip", "-n", host, "link", "set", "eth1", "up"))
        yield testbed
    finally:
        down(testbed, machine, place)


@contextmanager
def _job(case: Case, testbed: TestbedConfig, place: Path) -> Iterator[list[Path]]:
    """A supervised training process in every host; yields the files of what they print."""
    settings = [f"train.watchdog_minutes={MINUTES}", "train.checkpoint_every=10"]
    settings.append("train.eval_every=0")
    words = ["-m", "scaling", "train", "tiny", "--mesh", f"fsdp={case.hosts}", "--restarts", "3"]
    words += ["--run-dir", str(place / "run"), "--steps", "1000000"]
    words += [word for setting in settings for word in ("--set", setting)]
    site, root = Path(__file__).parent / "site", Path(__file__).parents[2]
    logs, children = [], []
    for i, host in enumerate(testbed.host_namespaces):
        env = host_environment(testbed, i, PORT, os.environ)
        env |= {"PYTHONPATH": f"{site}:{root}", "SCALING_CACHE": str(place / "cache")}
        if case.coordination:
            env["JAX_COORDINATOR_ADDRESS"] = f"{COORDINATION}.1:{PORT}"
        logs.append(place / f"host{i}.log")
        with logs[-1].open("w") as log:
            command = ["ip", "netns", "exec", host, sys.executable, *words]
            children.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
    try:
        yield logs
    finally:
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _training(testbed: TestbedConfig, machine: Machine, host: int) -> int:
    """The process that trains in a host, not its supervisor."""
    for pid in processes(machine, testbed.host_namespaces[host]):
        if b"-P\0-m\0scaling" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"nothing trains in host {host}")


def _until(condition: Callable[[], object], logs: list[Path]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, _text(logs)
        time.sleep(0.1)


def _text(logs: list[Path]) -> str:
    return "\n".join(log.read_text() for log in logs)


def _steps(folder: Path) -> list[dict]:
    try:
        return [line for line in read_metrics(folder) if "loss" in line]
    except ValueError:  # not there yet
        return []


def _last_step(folder: Path) -> int:
    return max((line["step"] for line in _steps(folder)), default=0)


def _newest(folder: Path) -> float:
    """When the newest step ended, as unix time."""
    return max((line["time"] for line in _steps(folder)), default=0.0)
