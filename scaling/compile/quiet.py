"""Keeps what the compiler's C++ writes to stderr in a log, apart from the user's terminal.

XLA, absl and CUDA write to file descriptor 2, where Python's `sys.stderr` cannot hold them back.
While `quiet` is on, descriptor 2 is the log file and `sys.stderr` a copy of the old descriptor:

    2 ------------> ~/.cache/scaling/compile.log      shown if the compilation fails
    sys.stderr ---> the terminal                      our own messages and warnings
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.meshes.reading import cache_path

VERBOSE = "SCALING_VERBOSE"  # environment variable: 1 leaves stderr alone; set by --verbose
LONGEST = 1_000_000  # bytes of the log, from which it is begun anew
SHOWN = 4000  # last characters of the log that a failure shows
# Bytes of address space: where `ulimit -v` leaves less, jax's C++ ends the process. On two cores
# `scaling train tiny` ends well with 3.5e9, and is aborted by a thread that cannot begin, without a
# message, with 3.28e9 (jaxlib 0.10.2, CPU devices). GPUs need far more.
LEAST_ADDRESS_SPACE = 3.3e9


def log_path() -> Path:
    """Return $SCALING_CACHE/compile.log, or ~/.cache/scaling/compile.log."""
    return cache_path("compile.log")


@contextmanager
def quiet(message: str = "") -> Iterator[None]:
    """Send what is written to file descriptor 2 into the log; an exception shows its end.

    Args:
        message: printed first, where stderr is a terminal.

    Raises:
        InputError: the compiler has too little address space.
    """
    check_address_space()
    if message and sys.stderr.isatty():
        print(message, file=sys.stderr, flush=True)
    log = None if os.environ.get(VERBOSE) or _descriptor_is_log() else _opened_log()
    if log is None:
        yield
        return
    with log:
        start = log.tell()
        try:
            with _redirected(log):
                yield
        except InputError:  # the message says it all
            raise
        except Exception:
            # What was written to the log since `start`, or its end.
            end = log.seek(0, os.SEEK_END)
            log.seek(max(start, end - SHOWN))
            text = (log.read() or b"").decode(errors="replace").strip()
            if text:
                print(f"{text}\n(log: {log_path()})", file=sys.stderr)
            raise


def check_address_space() -> None:
    """Refuse a limit of the address space with which no program can be compiled and run.

    Raises:
        InputError: the limit, and how to lift it.
    """
    import resource  # which a browser's Python, that compiles nothing, lacks

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise InputError(
            f"this process may use {limit / 1e9:.1f} GB of address space, and jax needs "
            f"{LEAST_ADDRESS_SPACE / 1e9:.1f} GB at least: lift the limit (ulimit -v unlimited)"
        )


def _descriptor_is_log() -> bool:
    """Return whether an outer `quiet` is on."""
    try:
        return os.path.samestat(os.fstat(2), log_path().stat())
    except OSError:  # no log yet, or no stderr
        return False


def _opened_log() -> io.FileIO | None:
    path = log_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LONGEST:
            path.unlink()
        log = io.FileIO(path, "a+")
        log.seek(0, os.SEEK_END)
        return log
    except OSError:
        return None


@contextmanager
def _redirected(log: io.FileIO) -> Iterator[None]:
    """Point descriptor 2 at the log, and `sys.stderr` at what it was."""
    before = sys.stderr
    before.flush()
    saved = os.dup(2)
    os.dup2(log.fileno(), 2)
    terminal = os.fdopen(os.dup(saved), "w", buffering=1, errors="replace")
    try:
        is_stderr = before.fileno() == 2
    except (AttributeError, OSError):  # it has no descriptor, as in a notebook
        is_stderr = False
    if is_stderr:  # a stream that tolerates the end of its reader stays one
        sys.stderr = before.wrap(terminal) if hasattr(before, "wrap") else terminal
    try:
        yield
    finally:
        sys.stderr = before
        terminal.close()
        os.dup2(saved, 2)
        os.close(saved)
