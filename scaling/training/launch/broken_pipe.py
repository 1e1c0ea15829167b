"""Output to a pipe whose reader may end first: the run goes on.

    scaling train big 2>&1 | tee log     tee dies; steps, checkpoints and metrics go on

A live line on a terminal needs none of this: a terminal that goes ends the run with SIGHUP.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Within it stdout and stderr go to /dev/null once their reader has gone."""
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
    """Let everything that is written to `stream` from now on disappear."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


class _PipeTolerantStream:
    """A text stream that no missing reader breaks."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def wrap(self, stream: TextIO) -> "_PipeTolerantStream":
        """A tolerant stream around another one."""
        return _PipeTolerantStream(stream)

    def write(self, text: str) -> int:
        return self._tolerate(self._stream.write, text) or len(text)

    def flush(self) -> None:
        self._tolerate(self._stream.flush)

    def _tolerate(self, operation: Any, *arguments: str) -> Any:
        try:
            return operation(*arguments)
        except BrokenPipeError:
            return redirect_to_devnull(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
