"""The command that tries faults runs, and its exit code is that of its table."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_two_cases_are_tried_and_survived():
    command = [sys.executable, "-m", "experiments.faults", "--only", "damage,ending"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| a file of a checkpoint damaged | 200 | 200 |" in done.stdout
    assert "| measured.json missing after the end | 1 | 1 |" in done.stdout
