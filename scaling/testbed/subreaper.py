"""Runs one command and, when it ends, kills whatever it has started: nothing of it gets away.

    python -I -S keeper.py COMMAND ...

    job ---- keeper ---- COMMAND ---- its children ---- ...
     `------ stdin of the keeper; where it closes, as when the job is killed, all is killed at once

Neither sessions nor process groups hold what descends from a command, and a mark in the environment
is not always to be read: while a process is in execve(2), /proc/PID/environ is empty. So the keeper
asks the kernel to be the child subreaper of its descendants (PR_SET_CHILD_SUBREAPER in prctl(2)):
whoever loses its parent becomes the keeper's own child. Then

    no child left = no descendant left, for every chain of parents ends at the keeper;
    killing one's children until none is left ends, and the children of those killed come next;
    no stranger is hit: a child that has ended keeps its pid until the keeper has waited for it.

A program of its own, and not a thread of the job, because the job may have other children. It uses
the standard library alone, so it starts quickly.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h, since Linux 3.4
PASSED_ON = (signal.SIGTERM, signal.SIGINT)
LIFELINE = 0  # stdin: nothing is ever written there
SHELL_SIGNAL = 128  # added to the number of the signal that ended a command
MOST_NOTES = 4096  # bytes read at once, one for each signal


def main(words: Sequence[str]) -> int:
    """Runs a command; returns its exit code, 128 + n if signal n ended it."""
    notes = signal_notes()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)  # blocked by the job until now
    adopt_orphans()
    command = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        wait(command, notes)
    finally:
        end_all(command)
    return SHELL_SIGNAL - command.returncode if command.returncode < 0 else command.returncode


def signal_notes() -> int:
    """A file descriptor from which the number of every signal can be read, one byte each."""
    notes, noted = os.pipe()
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted, warn_on_full_buffer=False)
    for number in (*PASSED_ON, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return notes


def adopt_orphans() -> None:
    """From now on, whoever descends from this process and loses its parent becomes its child.

    Raises:
        OSError: the kernel is older than Linux 3.4.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def wait(command: subprocess.Popen[bytes], notes: int) -> None:
    """Until the command or the job has ended; passes signals on, and waits for adopted orphans."""
    while command.returncode is None:
        ready, _, _ = select.select([notes, LIFELINE], [], [])
        if LIFELINE in ready:
            return
        for number in os.read(notes, MOST_NOTES):
            if number in PASSED_ON:
                command.send_signal(number)
        while collect(command, os.WNOHANG):
            pass


def end_all(command: subprocess.Popen[bytes]) -> None:
    """Kills and waits for children until there is none, so that no descendant is left either."""
    while (ended := collect(command, os.WNOHANG)) is not None:
        if not ended:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            collect(command)  # comes back: whoever was a child before this round is killed


def children() -> list[int]:
    """Own children, with those that have ended and were not waited for."""
    return [int(n) for n in os.listdir("/proc") if n.isdigit() and parent(n) == os.getpid()]


def parent(pid: str) -> int | None:
    """Of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2]
    except OSError:
        return None
    return int(after_name.split()[1])  # proc(5): state, parent, ...


def collect(command: subprocess.Popen[bytes], flags: int = 0) -> bool | None:
    """Waits for one child: whether one has ended; None if there are no children."""
    try:
        pid, status = os.waitpid(-1, flags)
    except ChildProcessError:
        return None
    if pid == command.pid:
        command.returncode = os.waitstatus_to_exitcode(status)
    return pid != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
