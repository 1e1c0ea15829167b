"""One process in every host, as a launcher starts a job on a cluster.

    host0   JAX_PROCESS_ID=0   JAX_COORDINATOR_ADDRESS=10.77.0.1:port  JAX_NUM_PROCESSES=2
    host1   JAX_PROCESS_ID=1   ... and as many fake CPU devices each as the testbed has

The first process that fails ends the others, and its exit code is returned. SIGTERM and SIGINT are
forwarded to all, so that a training run can save; a second one kills. All descendants of a command
end with it, also when this process is killed or the testbed removed:

    setpriv --pdeathsig    the kernel kills unshare when this process ends (prctl(2))
    unshare --pid          ... and with it the first process of a pid namespace, and so all others
    sh                     that first process: it adopts orphans, and only SIGKILL ends it
    ip netns exec          enters the host and runs the command
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from scaling.meshes.errors import InputError
from scaling.meshes.link_figures import LINK_RATE
from scaling.testbed.build import deferred_signals, missing
from scaling.testbed.machine import CommandFailed, Machine, search_path
from scaling.testbed.plan import TestbedConfig

GRACE = 30.0  # s to end after a signal, or after another process failed: a checkpoint takes some
POLL = 0.05  # s
OUTPUT_TIMEOUT = 30.0  # s to read the last output of processes that have ended
OTHER_LAUNCHERS = ("SLURM_", "OMPI_", "PMIX_", "JAX_LOCAL_DEVICE_IDS")  # they would set other ranks
SHELL_SIGNAL = 128  # added to the number of the signal that ended a command
ENDS_WITH_US = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount-proc", "--fork",
    "--kill-child", "sh", "-c", 'trap : INT; "$@"; exit $?', "sh",
)  # fmt: skip
FREE_PORT = "import socket as s; x = s.socket(); x.bind(('', 0)); print(x.getsockname()[1])"


def run_job(
    testbed: TestbedConfig,
    machine: Machine,
    command: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    grace: float = GRACE,
) -> int:
    """Runs `command` in every host, with the host before each line of output.

    Returns:
        The exit code: 0, or that of the first process that failed (128 + n after signal n).

    Raises:
        InputError: there is no such command, or the testbed cannot be entered.
    """
    try:
        words = ("ip", "netns", "exec", testbed.host_namespaces[0], sys.executable, "-c", FREE_PORT)
        port = int(machine.run(words))
    except CommandFailed as error:
        raise InputError(f"cannot enter {testbed.host_namespaces[0]}: {error}") from None
    given = [host_environment(testbed, i, port, environment) for i in range(testbed.hosts)]
    path = given[0]["PATH"]
    if not command or shutil.which(command[0], path=path) is None:
        raise InputError(f"there is no command {' '.join(command[:1])!r}; write: run -- COMMAND")
    with deferred_signals() as received:
        children: list[subprocess.Popen[str]] = []
        try:
            for name, env in zip(testbed.host_namespaces, given, strict=True):
                children.append(_start(name, command, env))
            printers = [t for i, c in enumerate(children) for t in _printers(f"host{i}", c)]
            # True once `down` has removed all namespaces.
            is_down = lambda: len(missing(testbed, machine)) == len(testbed.namespaces)
            code = _watch(children, received, grace, is_down)
        finally:
            _kill(children)
            for child in children:
                child.wait()
        deadline = time.monotonic() + OUTPUT_TIMEOUT
        for printer in printers:
            printer.join(max(0.0, deadline - time.monotonic()))
    return code


def host_environment(
    testbed: TestbedConfig, index: int, port: int, environment: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the process in host `index`; other launchers' variables are left out."""
    kept = {k: v for k, v in environment.items() if not k.startswith(OTHER_LAUNCHERS)}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{search_path(environment)}",
        "PYTHONUNBUFFERED": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(testbed.devices),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        "JAX_COORDINATOR_ADDRESS": f"{testbed.addresses[0]}:{port}",
        "JAX_NUM_PROCESSES": str(testbed.hosts),
        "JAX_PROCESS_ID": str(index),
        LINK_RATE: str(testbed.bandwidth),
    }


def _start(
    namespace: str, command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ENDS_WITH_US, "ip", "netns", "exec", namespace, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _printers(host: str, child: subprocess.Popen[str]) -> list[threading.Thread]:
    assert child.stdout is not None and child.stderr is not None
    pairs = ((child.stdout, sys.stdout), (child.stderr, sys.stderr))

    def pass_on(source: IO[str], target: IO[str]) -> None:
        with source:
            for line in source:
                # One write: lines of two hosts do not mix.
                target.write(f"{host}: {line.rstrip()}\n")
                target.flush()

    threads = [threading.Thread(target=pass_on, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads


def _watch(
    children: Sequence[subprocess.Popen[str]],
    received: list[int],
    grace: float,
    is_down: Callable[[], bool],
) -> int:
    """Waits until all processes have ended; returns the exit code of the first failure."""
    first, passed_on, deadline = 0, 0, float("inf")
    while None in [child.poll() for child in children]:  # asks every one
        failed = next((c.returncode for c in children if c.returncode), 0)
        if failed and not first:
            first = failed
            _signal(children, signal.SIGTERM)
            deadline = min(deadline, time.monotonic() + grace)
        if len(received) > passed_on:
            _kill(children) if passed_on else _signal(children, received[-1])
            passed_on = len(received)
            deadline = min(deadline, time.monotonic() + grace)
        if time.monotonic() > deadline or is_down():
            _kill(children)
        time.sleep(POLL)
    first = first or next((c.returncode for c in children if c.returncode), 0)
    return SHELL_SIGNAL - first if first < 0 else first


def _signal(children: Sequence[subprocess.Popen[str]], number: int) -> None:
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, number)


def _kill(children: Sequence[subprocess.Popen[str]]) -> None:
    for child in children:
        child.kill()  # does nothing to one that has ended
