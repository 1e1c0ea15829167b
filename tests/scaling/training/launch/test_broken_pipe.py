"""A run goes on when nobody reads what it prints."""

import os
import subprocess
import sys
from contextlib import contextmanager, suppress

import pytest

from scaling.training.launch.broken_pipe import ignore_broken_pipe
from scaling.training.monitor.progress import ProgressLine


@contextmanager
def unread():
    """Standard output and error are pipes whose readers have gone."""
    before, pipes = (sys.stdout, sys.stderr), []
    for _ in before:
        reader, writer = os.pipe()
        os.close(reader)
        pipes.append(os.fdopen(writer, "w", buffering=1))
    sys.stdout, sys.stderr = pipes
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for pipe in pipes:
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_lines_that_nobody_reads_are_no_error(stream):
    with unread():
        with ignore_broken_pipe():
            for number in range(3):
                print(f"line {number}", file=getattr(sys, stream))
                print("flushed", file=getattr(sys, stream), flush=True)
        print("nor afterwards", file=getattr(sys, stream), flush=True)


def test_progress_that_nobody_reads_is_no_error():
    with unread(), ignore_broken_pipe(), ProgressLine(3) as line:
        line.note("a note")
        for step in range(1, 4):
            line.update(step, 1.0, 1.0, 1.0)


QUIET = """
import sys
from scaling.compile.quiet import quiet
from scaling.training.launch.broken_pipe import ignore_broken_pipe

sys.stdin.readline()  # stderr has no reader any more
with ignore_broken_pipe():
    with quiet():
        print("nobody reads this", file=sys.stderr, flush=True)
    print("nor this", file=sys.stderr, flush=True)
    print("done", flush=True)
"""


def test_a_missing_reader_is_no_error_while_the_compiler_is_kept_quiet(tmp_path):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "SCALING_CACHE": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", QUIET], env=env, text=True, **pipes)
    process.stderr.close()
    process.stdin.write("go\n")
    process.stdin.close()
    assert process.stdout.read() == "done\n" and process.wait(600) == 0
    process.stdout.close()
