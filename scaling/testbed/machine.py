"""The only module of the testbed that touches the system: ip, tc, their files, and processes.

    /run/netns/NAME          a namespace, as `ip netns` keeps it
    /etc/netns/NAME/hosts    what processes started by `ip netns exec NAME` see as /etc/hosts

See ip-netns(8). Tests replace the folders and the function that runs commands.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scaling.meshes.errors import InputError

SYSTEM_PATH = "/usr/sbin:/sbin"  # where Debian has ip and tc; not in every user's PATH
PATIENCE = 30  # s for one command; assumed by this project: all of `up` took 0.3 s (2026-11-21)
GRACE = 5.0  # s between SIGTERM and SIGKILL
POLL = 0.05  # s
# Commands, and their packages in Debian and Ubuntu.
NEEDED = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux"}


class CommandFailed(Exception):
    """A command of the system failed; the message holds its output."""


@dataclass(frozen=True)
class Machine:
    """How the system is reached."""

    run: Callable[[Sequence[str]], str]  # a command; returns what it prints or raises CommandFailed
    kill: Callable[[int, int], None] = os.kill
    namespaces: Path = Path("/run/netns")
    settings: Path = Path("/etc/netns")
    grace: float = GRACE

    def has_namespace(self, name: str) -> bool:
        """True if there is a namespace of that name, whoever made it."""
        return os.path.lexists(self.namespaces / name)

    def hosts_file(self, namespace: str) -> Path:
        """The file that stands in for /etc/hosts there."""
        return self.settings / namespace / "hosts"


@contextmanager
def exclusive_lock(machine: Machine) -> Iterator[None]:
    """Hold the machine-wide lock of `up` and `down`; waits until another process frees it.

    Commands started meanwhile inherit the lock: after a kill it lasts until they end.
    """
    import fcntl  # not on every system that can read this file

    try:
        folder = os.open(machine.namespaces.parent, os.O_RDONLY)  # no file is left behind
    except OSError as error:
        raise InputError(f"cannot open {machine.namespaces.parent}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another scaling testbed up or down", file=sys.stderr)
            fcntl.flock(folder, fcntl.LOCK_EX)
        os.set_inheritable(folder, True)
        yield
    finally:
        os.close(folder)


def present_machine() -> Machine:
    """This machine.

    Raises:
        InputError: without root, or without `ip` and `tc`.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise InputError("scaling testbed makes network namespaces, which needs root: use sudo")
    path = search_path(os.environ)
    for tool, package in NEEDED.items():
        if shutil.which(tool, path=path) is None:
            raise InputError(
                f"scaling testbed needs the command {tool!r}, which is not there; on Debian and "
                f"Ubuntu: apt-get install {package}"
            )
    return Machine(run)


def search_path(environment: Mapping[str, str]) -> str:
    """The PATH in which commands are looked up."""
    return f"{environment.get('PATH', os.defpath)}:{SYSTEM_PATH}"


def run(words: Sequence[str]) -> str:
    """The output of a command, run in a session of its own, which Ctrl-C does not reach.

    Raises:
        CommandFailed: it is missing, ends with another code than 0, or takes too long.
    """
    environment = os.environ | {"PATH": search_path(os.environ), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            list(words),
            capture_output=True,
            text=True,
            env=environment,
            timeout=PATIENCE,
            start_new_session=True,
            close_fds=False,  # children inherit the lock file, and nothing else that Python opens
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"`{' '.join(words)}`: {error}") from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise CommandFailed(f"`{' '.join(words)}`: {said}")
    return done.stdout


def write_hosts(machine: Machine, namespace: str, text: str) -> None:
    """Make the file that `ip netns exec` shows as /etc/hosts.

    Raises:
        CommandFailed: there is such a file or folder already, or it cannot be written.
    """
    path = machine.hosts_file(namespace)
    try:
        machine.settings.mkdir(exist_ok=True)
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from None


def remove_hosts(machine: Machine, namespace: str) -> bool:
    """Remove that file and its folder, and /etc/netns if nothing else is in it.

    Returns:
        True if there was such a folder.

    Raises:
        CommandFailed: it cannot be removed, or the folder holds something else too.
    """
    path = machine.hosts_file(namespace)
    there = path.parent.exists()
    try:
        if there:
            path.unlink(missing_ok=True)
            path.parent.rmdir()
    except OSError as error:
        raise CommandFailed(f"cannot remove {path.parent}: {error.strerror}") from None
    with suppress(OSError):  # it is not empty, or not there
        machine.settings.rmdir()
    return there


def processes(machine: Machine, namespace: str) -> list[int]:
    """Ids of the processes in a namespace, without this process."""
    pids = map(int, machine.run(("ip", "netns", "pids", namespace)).split())
    return [pid for pid in pids if pid != os.getpid()]


def end_processes(machine: Machine, namespace: str) -> list[int]:
    """End all processes in a namespace, with SIGTERM and after `grace` seconds with SIGKILL.

    Returns:
        The ids of those that ran.

    Raises:
        CommandFailed: they cannot be listed, or live on.
    """
    first = processes(machine, namespace)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + machine.grace
        signalled: set[int] = set()
        while left := processes(machine, namespace):
            if signalled and time.monotonic() > deadline:
                break
            for pid in left:
                if pid not in signalled:  # once each, including those started meanwhile
                    with suppress(ProcessLookupError):  # it has just ended
                        machine.kill(pid, number)
            signalled.update(left)
            time.sleep(POLL)
        else:
            return first
    raise CommandFailed(f"processes {left} in {namespace} do not end")
