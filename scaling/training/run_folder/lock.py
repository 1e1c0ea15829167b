"""The lock of a folder: one job at a time writes there.

    .lock         locked with flock(2) until its process ends, however it ends
    .lock.held    where the file system has no flock: made by who finds none (open(2): O_EXCL),
                  dated anew every ten seconds, deleted at the end

Both name the process. A killed one leaves its `.lock.held`, which is taken over when the process
ran here and is gone, or when its date has stood still for a minute: it is compared with itself, as
the clocks of the hosts and of the file server differ. Where two take it over at once, or its
process was only stopped, who has lost it finds another file in its place before its next write.
"""

import fcntl
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from scaling.meshes.durable import make_folders
from scaling.meshes.errors import InputError, printable

LOCK, HELD = ".lock", ".lock.held"
SAME_HOST_WAIT = 10.0  # s, for a process that was sent a signal to end
OTHER_HOST_WAIT = 120.0  # s, for a file server to release a lost host's lock (Linux's NFS: 90 s)
POLL = 0.2  # s
BEAT = 10.0  # s between dates of .lock.held
STALE = 60.0  # s without a new date, six of them: its process is gone


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], str]]:
    """Make a folder and hold its lock.

    Yields:
        What says why the lock in the folder is not ours any more; "" if it is.

    Raises:
        InputError: another job writes there and does not end soon, or the folder cannot be written.
    """
    file, reason = _lock(folder)
    with file:
        if not reason:
            yield lambda: _is_moved(file, folder / LOCK)
            return
        warnings.warn(
            f"the file system of the run folder has no locks ({reason}): another run is kept out "
            f"by {HELD} alone, within {STALE:.0f} s of its end where it is killed on another host",
            stacklevel=3,
        )
        with _held(folder) as held:
            yield lambda: _is_moved(file, folder / LOCK) or _is_moved(held, folder / HELD)


def _lock(folder: Path) -> tuple[TextIO, str]:
    """The locked file, until it is closed; and why it is not locked where nothing can be."""
    reason = ""

    def attempt() -> str:
        """Take the lock; returns its holder, "" where it is ours or the file system has none."""
        nonlocal reason
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            return printable(file.read().strip()) or "another process"
        except OSError as error:
            reason = str(error.strerror)
        return ""

    try:
        make_folders(folder)
        file = (folder / LOCK).open("a+", errors="replace")
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written to ({error.strerror}); choose another --run-dir"
        ) from None
    try:
        _wait(folder, LOCK, attempt)
    except InputError:
        file.close()
        raise
    if _is_moved(file, folder / LOCK):  # deleted while we waited: it keeps nobody else out
        file.close()
        return _lock(folder)
    with suppress(OSError):  # the name of the holder is for people only
        file.truncate(0)
        file.write(_name() + "\n")
        file.flush()
    return file, reason


def _wait(folder: Path, name: str, attempt: Callable[[], str]) -> None:
    """Try until the lock is ours; InputError with its holder, who does not end soon."""
    if not (holder := attempt()):
        return
    print(f"waiting for {holder}, which writes to {folder}", file=sys.stderr, flush=True)
    is_near = name == LOCK and holder.endswith(f" on {socket.gethostname()}")
    deadline = time.monotonic() + (SAME_HOST_WAIT if is_near else OTHER_HOST_WAIT)
    while (holder := attempt()) and time.monotonic() < deadline:
        time.sleep(POLL)
    if holder:
        raise InputError(
            f"{folder} is being written by another run, {holder}: wait until it has ended, or "
            f"delete {name} if its host is gone; or choose another --run-dir"
        )


def _is_moved(file: TextIO, path: Path) -> str:
    """Why the file at a path is not this open one any more; "" if it is."""
    try:
        there = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError as error:
        return str(error.strerror)
    return "" if there else f"its {path.name} is another one"


# Without flock


@contextmanager
def _held(folder: Path) -> Iterator[TextIO]:
    """The open `.lock.held`, dated anew until the end."""
    claim = _Claim(folder / HELD)
    _wait(folder, HELD, claim.attempt)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):  # the next one may do
                os.utime(claim.file.fileno())  # by the clock of the file server

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield claim.file
    finally:
        ended.set()
        beating.join()
        if not _is_moved(claim.file, folder / HELD):
            (folder / HELD).unlink(missing_ok=True)
        claim.file.close()


class _Claim:
    """Attempts to make the file, and what they have seen of another's."""

    file: TextIO

    def __init__(self, path: Path):
        self._path, self._since = path, 0.0
        self._seen: tuple[int, ...] = ()

    def attempt(self) -> str:
        """Make the file, or take it over; returns its holder, "" where it is ours."""
        try:
            self.file = self._path.open("x")
        except FileExistsError:
            return self._holder()
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be written ({error.strerror}); choose another --run-dir"
            ) from None
        self.file.write(f"{_name()}\n{_process_numbers()}\n")
        self.file.flush()
        return ""

    def _holder(self) -> str:
        """Whose file it is; if nobody's, it is removed, and the next attempt may make it."""
        try:
            with self._path.open(errors="replace") as file:  # asks a file server for its date
                name, numbers = (file.read().splitlines() + ["", ""])[:2]
                date = os.fstat(file.fileno())
        except OSError:  # deleted since
            return "another process"
        seen, holder = (date.st_ino, date.st_mtime_ns), printable(name) or "another process"
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        if _is_gone(name, numbers) or time.monotonic() - self._since >= STALE:
            print(f"{holder} is gone: its {self._path} is taken over", file=sys.stderr, flush=True)
            self._path.unlink(missing_ok=True)
        return holder


def _name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _process_numbers() -> str:
    """Names of the boot and pid namespace (Linux): processes that share both number alike."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # random(4)
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # pid_namespaces(7)
    except OSError:
        return ""


def _is_gone(name: str, numbers: str) -> bool:
    """True if the process that wrote this ran where ours do, and does not any more."""
    _, number, *_ = [*name.split(), "", ""]
    if not number.isdecimal() or not numbers or numbers != _process_numbers():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is there, of another user; or no such number
        pass
    return False
