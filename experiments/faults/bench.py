"""What all cases share: commands in a folder of their own, the undisturbed run, the outcome."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

STEPS = 300
TRAIN = ("train", "tiny", "--devices", "1", "--mesh", "data=1", "--steps", str(STEPS))
OFTEN = ("--set", "train.checkpoint_every=2")
COMPARED = ("loss", "grad_norm", "tokens_seen")
ENOUGH = 300.0  # s for any one command, on a slow machine
SOON = 60.0  # s for the end of a process behind its message; Orbax's threads took 300
KILLS, FLIPS = 24, 200


@dataclass(frozen=True)
class Outcome:
    """The result of one case."""

    name: str
    tried: int
    survived: int  # as promised: the same numbers, or the promised message
    lost: str  # what is gone by design, or went wrong
    seconds: float = 0.0


Case = Callable[["Bench"], Outcome]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Add a case to the table, by the name of its function."""
    CASES[function.__name__] = function
    return function


class Bench:
    """Commands in a folder of their own, and the undisturbed run."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.random = folder, random.Random(seed)

    @cached_property
    def base(self) -> Path:
        """The folder of the undisturbed run."""
        folder = self.folder / "base"
        done = self.run(*TRAIN, "--run-dir", folder)
        assert done.returncode == 0, done.stderr
        return folder

    def start(
        self, *words: object, env: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen[str]:
        """Start `scaling WORDS`, with these variables too."""
        command = [sys.executable, "-m", "scaling", *map(str, words)]
        pipe = subprocess.PIPE
        variables = {**os.environ, **env}
        return subprocess.Popen(
            command, cwd=self.folder, env=variables, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Execute `scaling WORDS` to its end."""
        return self.end(self.start(*words))

    def end(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        """Wait for a process."""
        out, err = process.communicate(timeout=ENOUGH)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def train(self, folder: Path, *words: object) -> subprocess.Popen[str]:
        """Start training with many checkpoints."""
        return self.start(*TRAIN, *OFTEN, "--run-dir", folder, *words)

    def at_step(self, process: subprocess.Popen[str], folder: Path, step: int) -> None:
        """Return when the metrics have the line of a step, or the process has ended."""
        while process.poll() is None and last_step(folder) < step:
            time.sleep(0.01)

    def stopped(self, folder: Path, step: int, *words: object) -> None:
        """Train up to a step, and stop by a signal."""
        process = self.train(folder, *words)
        self.at_step(process, folder, step)
        process.terminate()
        self.end(process)

    def finish(self, folder: Path) -> bool:
        """Go on to the end; True if all numbers are those of the undisturbed run."""
        done = self.run(*TRAIN, *OFTEN, "--run-dir", folder, "--resume")
        return done.returncode == 0 and numbers(folder) == numbers(self.base)


def lines_of(folder: Path) -> list[dict]:
    """The whole lines of the metrics."""
    path = folder / "metrics.jsonl"
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text.split(b"\n")[:-1] if line.startswith(b"{")]


def last_step(folder: Path) -> int:
    """The last step in the metrics; 0 without one."""
    return max((line["step"] for line in lines_of(folder)), default=0)


def numbers(folder: Path) -> dict[int, tuple]:
    """The compared figures of each step, from its last line."""
    steps = [line for line in lines_of(folder) if "loss" in line]
    return {line["step"]: tuple(line.get(key) for key in COMPARED) for line in steps}


def refused(done: subprocess.CompletedProcess[str], code: int = 2, *parts: str) -> bool:
    """True for an exit code with one message that has all parts, and no traceback."""
    return (
        done.returncode == code
        and "Traceback" not in done.stderr
        and all(part in done.stderr for part in parts)
    )


@contextmanager
def memory_disk(folder: Path, options: str) -> Iterator[Path]:
    """A small file system in memory at `folder`."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a file system of `memory_disk`."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def make_read_only(folder: Path) -> None:
    """Mount a folder over itself, read-only; tried again while files in it are being written."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    command = ["mount", "-o", "remount,bind,ro", str(folder)]
    while subprocess.run(command, capture_output=True).returncode:
        time.sleep(0.001)
