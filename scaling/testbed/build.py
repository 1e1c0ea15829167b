"""Up and down. Nothing is left behind, and nothing that is not the testbed's is touched.

    up      write the record, run the steps, mark the record `complete`; on any failure: down
    down    remove processes, namespaces, files, record; the record stays if something cannot go

The steps, in order:

    for each host    its hosts file, its namespace
    switch           a bridge
    for each host    a link to the switch, an address, the rate at both ends

The rate is a token bucket (tc-tbf(8)): `burst` bytes may pass at once, then `rate` holds; a packet
that would wait longer than `latency` is dropped, as in the buffer of a switch.

One `up` or `down` runs at a time on a machine: a `down` during an `up` waits and then removes all
of it. Links vanish with their namespaces.
"""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from scaling.meshes.errors import InputError
from scaling.testbed import machine as system
from scaling.testbed.machine import CommandFailed, Machine
from scaling.testbed.plan import BITS, TestbedConfig, hosts_file
from scaling.testbed.state import remove_state, write_state

BURST = 256 * 1024  # bytes; assumed by this project: several times the largest packet (64 KiB)
QUEUE = "50ms"  # assumed by this project; longer than any round trip here
PACKETS = 100_000  # in flight under --latency, where tc-netem(8) drops after 1,000 by default
HINTS = {  # messages of iproute2 6.1 and what they mean; only the first was seen here
    "qdisc kind is unknown": "This kernel cannot do it: --bandwidth needs sch_tbf, --latency "
    "sch_netem (modprobe sch_netem); without the latter leave --latency out.",
    "Unknown device type": "This kernel has no veth links or no bridge (modprobe veth bridge).",
    "Operation not permitted": "Root alone is not enough here: in a container, allow "
    "CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged).",
}


@dataclass(frozen=True)
class HostsFile:
    """Write `text` to /etc/netns/NAMESPACE/hosts."""

    namespace: str
    text: str


# A file, or the words of a command of `ip` or `tc`.
Step = HostsFile | tuple[str, ...]


class Interrupted(Exception):
    """A signal arrived while a testbed was made."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def up(testbed: TestbedConfig, machine: Machine, folder: Path) -> None:
    """Make a testbed; all of it or nothing.

    Raises:
        InputError: a name is taken, or the system refuses a step.
        Interrupted: SIGTERM or SIGINT came.
    """
    with system.exclusive_lock(machine), deferred_signals() as received:
        taken = [name for name in testbed.namespaces if machine.has_namespace(name)]
        folders = [machine.hosts_file(name).parent for name in testbed.host_namespaces]
        taken += [str(folder) for folder in folders if folder.exists()]
        if taken:
            raise InputError(
                f"{', '.join(taken)} is there already and not of this testbed; try again: every "
                "testbed draws its names at random"
            )
        write_state(testbed, folder)
        try:
            for step in steps(testbed, socket.gethostname()):
                if isinstance(step, HostsFile):
                    system.write_hosts(machine, step.namespace, step.text)
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
    with system.exclusive_lock(machine), deferred_signals():
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


def _remove(testbed: TestbedConfig, machine: Machine, folder: Path) -> tuple[list[str], list[str]]:
    """Remove all that can be; what was removed, and what could not be."""
    removed: list[str] = []
    problems: list[str] = []
    for name in testbed.namespaces:
        with _kept(problems):
            if machine.has_namespace(name):
                removed += [
                    f"process {pid} in {name}" for pid in system.end_processes(machine, name)
                ]
                machine.run(("ip", "netns", "del", name))
                removed.append(f"namespace {name}")
        with _kept(problems):
            if system.remove_hosts(machine, name):
                removed.append(f"file {machine.hosts_file(name)}")
    if not problems:
        with _kept(problems):
            remove_state(testbed, folder)
    return removed, problems


@contextmanager
def _kept(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except (CommandFailed, OSError) as error:
        problems.append(str(error))


def steps(testbed: TestbedConfig, machine_name: str) -> list[Step]:
    """All steps. `machine_name`: what `hostname` prints."""
    switch = testbed.switch
    commands: list[Step] = []
    for index, host in enumerate(testbed.host_namespaces):
        commands += [HostsFile(host, hosts_file(testbed, index, machine_name))]
        commands += [("ip", "netns", "add", host)]
    commands += [("ip", "netns", "add", switch)]
    commands += _commands(switch, "link add bridge0 type bridge", "link set bridge0 up")
    for index, host in enumerate(testbed.host_namespaces):
        port, address = f"port{index}", f"{testbed.addresses[index]}/24"
        commands += _commands(switch, f"link add {port} type veth peer name eth0 netns {host}")
        commands += _commands(switch, f"link set {port} master bridge0", f"link set {port} up")
        commands += _commands(host, "link set lo up", f"addr add {address} dev eth0")
        commands += _commands(host, "link set eth0 up")
        commands += _limits(testbed, switch, port, latency=0.0)
        commands += _limits(testbed, host, "eth0", testbed.latency)
    return commands


def _limits(testbed: TestbedConfig, namespace: str, device: str, latency: float) -> list[Step]:
    """The rate at which `device` sends, and before it the delay of a packet, if there is one."""
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", device)
    rate = f"tbf rate {BITS * testbed.bandwidth}bit burst {BURST} latency {QUEUE}".split()
    if not latency:
        return [(*add, "root", *rate)]
    delay = f"root handle 1: netem delay {round(latency * 1e6)}us limit {PACKETS}".split()
    return [(*add, *delay), (*add, "parent", "1:1", "handle", "10:", *rate)]


def _commands(namespace: str, *lines: str) -> list[Step]:
    return [("ip", "-n", namespace, *line.split()) for line in lines]
