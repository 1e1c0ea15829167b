"""What a run prints, where the reader may end before it: the run itself is more than its lines.

    scaling train big 2>&1 | tee log     tee dies; the steps, checkpoints and metrics go on

A live line on a terminal needs none of this: a terminal that goes ends the run with SIGHUP.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Within it a pipe whose reader has gone takes what is printed, and nobody sees it."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_PipeTolerantStream(stream) for stream in before)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        finally:
            sys.stdout, sys.stderr = before


def redirect_to_devnull(stream: TextIO) -> None:
    """Have a stream whose reader has gone write to nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _PipeTolerantStream:
    """A text stream that no missing reader breaks."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            redirect_to_devnull(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush, if anybody reads."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            redirect_to_devnull(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
