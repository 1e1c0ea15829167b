"""Up and down, with the guarantee that nothing is left behind and nothing foreign is touched.

    up      record, then step by step, then `complete` in the record; whatever goes wrong: down
    down    processes, namespaces, files, record; what cannot be removed keeps its record

One at a time on a machine: a `down` that comes while `up` works waits, and removes all of it. Links
need no removing: they are gone with their namespaces.
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
    alone,
    end_processes,
    remove_hosts,
    tidy,
    write_hosts,
)
from scaling.testbed.plan import Bed, owner_line
from scaling.testbed.state import complete_state, remove_state, write_state
from scaling.testbed.steps import HostsFile, Namespace, Step, steps

HINTS = {  # words of iproute2 and what they mean; the first seen with 6.1, the others not seen here
    "qdisc kind is unknown": "This kernel cannot do it: --bandwidth needs sch_tbf, --latency "
    "sch_netem (modprobe sch_netem); without the latter leave --latency out.",
    "Unknown device type": "This kernel has no veth links or no bridge (modprobe veth bridge).",
    "Operation not permitted": "Root alone is not enough here: in a container, allow "
    "CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged).",
}


class Interrupted(Exception):
    """A signal came while a testbed was made."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def up(bed: Bed, machine: Machine, folder: Path) -> None:
    """Makes a testbed; all of it or nothing.

    Args:
        bed: what to make.
        machine: where.
        folder: of the records.

    Raises:
        InputError: a name is taken, or the system refuses a step.
        Interrupted: SIGTERM or SIGINT came.
    """
    with alone(machine), held_signals() as told:
        _refuse_foreign(bed, machine)
        write_state(bed, folder)
        try:
            for step in steps(bed, socket.gethostname()):
                _make(step, machine)
                if told:
                    raise Interrupted(told[0])
            complete_state(bed, folder)
        except BaseException as error:
            _, problems = _remove(bed, machine, folder)
            if not isinstance(error, CommandFailed):
                raise
            raise InputError(_refusal(error, problems)) from None


def down(bed: Bed, machine: Machine, folder: Path) -> list[str]:
    """Removes all that belongs to a testbed.

    Returns:
        What was removed, in words; nothing if another `down` has just done it.

    Raises:
        InputError: something cannot be removed; its record is kept, all else is gone.
    """
    with alone(machine), held_signals():
        removed, problems = _remove(bed, machine, folder)
    if problems:
        raise InputError("; ".join(problems))
    return removed


def missing(bed: Bed, machine: Machine) -> list[str]:
    """Namespaces of a testbed that are not there, as after a restart of the machine."""
    return [name for name in bed.namespaces if not machine.has_namespace(name)]


@contextmanager
def held_signals() -> Iterator[list[int]]:
    """Collects SIGTERM and SIGINT instead of letting them stop a step half-way.

    Outside the main thread Python delivers none, and this does nothing.
    """
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_foreign(bed: Bed, machine: Machine) -> None:
    taken = [name for name in bed.namespaces if machine.has_namespace(name)]
    folders = [machine.hosts_file(name).parent for name in bed.host_namespaces]
    taken += [str(folder) for folder in folders if folder.exists()]
    if taken:
        raise InputError(
            f"{', '.join(taken)} is there already and not of this testbed; try again: every "
            "testbed draws its names at random"
        )


def _make(step: Step, machine: Machine) -> None:
    if isinstance(step, HostsFile):
        write_hosts(machine, step.namespace, step.text)
    elif isinstance(step, Namespace):
        machine.run(("ip", "netns", "add", step.name))
    else:
        machine.run(step.words)


def _remove(bed: Bed, machine: Machine, folder: Path) -> tuple[list[str], list[str]]:
    """What was removed, and what could not be."""
    removed: list[str] = []
    problems: list[str] = []
    present = [name for name in bed.namespaces if machine.has_namespace(name)]
    for name in present:
        try:
            removed += [f"process {pid} in {name}" for pid in end_processes(machine, name)]
            machine.run(("ip", "netns", "del", name))
            removed.append(f"namespace {name}")
        except CommandFailed as error:
            problems.append(str(error))
    for name in bed.host_namespaces:
        _remove_file(bed, name, machine, removed, problems)
    if not problems:
        _forget(bed, machine, folder, problems)
    return removed, problems


def _forget(bed: Bed, machine: Machine, folder: Path, problems: list[str]) -> None:
    try:
        tidy(machine)
        remove_state(bed, folder)
    except (CommandFailed, OSError) as error:
        problems.append(str(error))


def _remove_file(
    bed: Bed, name: str, machine: Machine, removed: list[str], problems: list[str]
) -> None:
    path = machine.hosts_file(name)
    try:
        if path.exists() and not _is_ours(path, bed):
            problems.append(f"{path} does not begin with {owner_line(bed)!r}; remove it by hand")
        elif path.parent.exists():
            remove_hosts(machine, name)
            removed.append(f"file {path}")
    except (CommandFailed, OSError) as error:
        problems.append(str(error))


def _is_ours(path: Path, bed: Bed) -> bool:
    """A file that was cut short, as by a full disk, is ours too: its folder's name has our id."""
    text = path.read_text(encoding="utf-8", errors="replace")
    first, line = text.partition("\n")[0], owner_line(bed)
    return first == line or (line.startswith(text))


def _refusal(error: CommandFailed, problems: list[str]) -> str:
    """Says what the system lacks, where its words are known, and what is left behind."""
    said = str(error)
    hints = [hint for words, hint in HINTS.items() if words in said]
    hint = hints[0] if hints else "The system refuses what a testbed needs."
    left = "nothing is left behind" if not problems else f"left behind: {'; '.join(problems)}"
    return f"{said.rstrip('.')}. {hint} What was made is removed again: {left}"
