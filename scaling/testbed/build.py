"""Up and down. Nothing is left behind, and nothing that is not the testbed's is touched.

    up      write the record, run the steps, mark the record `complete`; on any failure: down
    down    remove processes, namespaces, files, record; the record stays if something cannot go

One `up` or `down` runs at a time on a machine: a `down` during an `up` waits and then removes all
of it. Links vanish with their namespaces.
"""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from scaling.meshes.errors import InputError
from scaling.testbed.machine import (
    CommandFailed,
    Machine,
    end_processes,
    exclusive_lock,
    remove_hosts,
    write_hosts,
)
from scaling.testbed.plan import TestbedConfig
from scaling.testbed.state import remove_state, write_state
from scaling.testbed.steps import HostsFile, steps

HINTS = {  # messages of iproute2 6.1 and what they mean; only the first was seen here
    "qdisc kind is unknown": "This kernel cannot do it: --bandwidth needs sch_tbf, --latency "
    "sch_netem (modprobe sch_netem); without the latter leave --latency out.",
    "Unknown device type": "This kernel has no veth links or no bridge (modprobe veth bridge).",
    "Operation not permitted": "Root alone is not enough here: in a container, allow "
    "CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged).",
}


class Interrupted(Exception):
    """A signal arrived while a testbed was made."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def up(testbed: TestbedConfig, machine: Machine, folder: Path) -> None:
    """Make a testbed; all of it or nothing.

    Args:
        testbed: what to make.
        machine: where.
        folder: of the records.

    Raises:
        InputError: a name is taken, or the system refuses a step.
        Interrupted: SIGTERM or SIGINT came.
    """
    with exclusive_lock(machine), deferred_signals() as received:
        _refuse_foreign(testbed, machine)
        write_state(testbed, folder)
        try:
            for step in steps(testbed, socket.gethostname()):
                if isinstance(step, HostsFile):
                    write_hosts(machine, step.namespace, step.text)
                else:
                    machine.run(step)
                if received:
                    raise Interrupted(received[0])
            write_state(testbed, folder, complete=True)
        except BaseException as error:
            _, problems = _remove(testbed, machine, folder)
            if not isinstance(error, CommandFailed):
                raise
            hints = [hint for words, hint in HINTS.items() if words in str(error)]
            hint = hints[0] if hints else "The system refuses what a testbed needs."
            left = f"left behind: {'; '.join(problems)}" if problems else "nothing is left behind"
            raise InputError(
                f"{str(error).rstrip('.')}. {hint} What was made is removed again: {left}"
            ) from None


def down(testbed: TestbedConfig, machine: Machine, folder: Path) -> list[str]:
    """Remove all that belongs to a testbed.

    Returns:
        What was removed, in words; nothing if another `down` has just done it.

    Raises:
        InputError: something cannot be removed; its record is kept, all else is gone.
    """
    with exclusive_lock(machine), deferred_signals():
        removed, problems = _remove(testbed, machine, folder)
    if problems:
        raise InputError("; ".join(problems))
    return removed


def missing(testbed: TestbedConfig, machine: Machine) -> list[str]:
    """Namespaces of a testbed that are not there, as after a restart of the machine."""
    return [name for name in testbed.namespaces if not machine.has_namespace(name)]


@contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT, so that they stop no step half-way; yields their numbers.

    Does nothing outside the main thread, where Python delivers no signals.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_foreign(testbed: TestbedConfig, machine: Machine) -> None:
    taken = [name for name in testbed.namespaces if machine.has_namespace(name)]
    folders = [machine.hosts_file(name).parent for name in testbed.host_namespaces]
    taken += [str(folder) for folder in folders if folder.exists()]
    if taken:
        raise InputError(
            f"{', '.join(taken)} is there already and not of this testbed; try again: every "
            "testbed draws its names at random"
        )


def _remove(testbed: TestbedConfig, machine: Machine, folder: Path) -> tuple[list[str], list[str]]:
    """Remove all that can be; what was removed, and what could not be."""
    removed: list[str] = []
    problems: list[str] = []
    for name in testbed.namespaces:
        with _kept(problems):
            if machine.has_namespace(name):
                removed += [f"process {pid} in {name}" for pid in end_processes(machine, name)]
                machine.run(("ip", "netns", "del", name))
                removed.append(f"namespace {name}")
        with _kept(problems):
            if remove_hosts(machine, name):
                removed.append(f"file {machine.hosts_file(name)}")
    if not problems:
        with _kept(problems):
            remove_state(testbed, folder)
    return removed, problems


@contextmanager
def _kept(problems: list[str]) -> Iterator[None]:
    """Note a failure, and go on."""
    try:
        yield
    except (CommandFailed, OSError) as error:
        problems.append(str(error))
