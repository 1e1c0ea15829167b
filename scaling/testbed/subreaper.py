"""Runs one command and kills all its descendants when it ends.

    python -I -S subreaper.py COMMAND ...

    job ---- subreaper ---- COMMAND ---- its children ---- ...
     `------ stdin of the subreaper; when it closes, as when the job is killed, all are killed

Neither sessions nor process groups hold all descendants of a command, and a mark in the environment
cannot always be read: during execve(2), /proc/PID/environ is empty. So this process becomes the
child subreaper of its descendants (PR_SET_CHILD_SUBREAPER in prctl(2)): each that loses its parent
becomes its own child. Then

    no child left means no descendant left, for every chain of parents ends here;
    killing one's children until none is left ends, and the children of those killed come next;
    no other process is hit: a child that has ended keeps its pid until it is waited for.

It is a program, not a thread of the job, because the job may have other children. It imports the
standard library only, so that it starts quickly.
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
LIFELINE = 0  # stdin; nothing is ever written to it
SHELL_SIGNAL = 128  # added to the number of the signal that ended a command
MOST_SIGNALS = 4096  # bytes read at once, one for each signal


def main(words: Sequence[str]) -> int:
    """Runs a command; returns its exit code, 128 + n if signal n ended it."""
    signals = signal_pipe()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)  # blocked by the job until now
    adopt_orphans()
    command = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        wait(command, signals)
    finally:
        kill_descendants(command)
    return SHELL_SIGNAL - command.returncode if command.returncode < 0 else command.returncode


def signal_pipe() -> int:
    """A file descriptor from which the number of every signal can be read, one byte each."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (*PASSED_ON, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return reader


def adopt_orphans() -> None:
    """Makes this process the parent of all its descendants that lose theirs.

    Raises:
        OSError: the kernel is older than Linux 3.4.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def wait(command: subprocess.Popen[bytes], signals: int) -> None:
    """Waits until the command or the job has ended; forwards signals, reaps adopted orphans."""
    while command.returncode is None:
        ready, _, _ = select.select([signals, LIFELINE], [], [])
        if LIFELINE in ready:
            return
        for number in os.read(signals, MOST_SIGNALS):
            if number in PASSED_ON:
                command.send_signal(number)
        while reap(command, os.WNOHANG):
            pass


def kill_descendants(command: subprocess.Popen[bytes]) -> None:
    """Kills and reaps children until none is left, and so no descendant either."""
    while (ended := reap(command, os.WNOHANG)) is not None:
        if not ended:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            reap(command)  # returns: every child of this round is killed


def children() -> list[int]:
    """Ids of this process's children, including those that have ended and were not reaped."""
    return [int(n) for n in os.listdir("/proc") if n.isdigit() and parent(n) == os.getpid()]


def parent(pid: str) -> int | None:
    """The id of a process's parent; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2]
    except OSError:
        return None
    return int(after_name.split()[1])  # proc(5): state, parent, ...


def reap(command: subprocess.Popen[bytes], flags: int = 0) -> bool | None:
    """Waits for one child. Returns whether one has ended, None if there are no children."""
    try:
        pid, status = os.waitpid(-1, flags)
    except ChildProcessError:
        return None
    if pid == command.pid:
        command.returncode = os.waitstatus_to_exitcode(status)
    return pid != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
