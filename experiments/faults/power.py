"""The power cut on a real ext4, on an image in a file: EXT4_IOC_SHUTDOWN, as xfstests cuts it.

Without a flush of the journal what the kernel has not written by itself is gone. Needs root, a loop
device and mkfs.ext4.
"""

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.faults.bench import ENOUGH, STEPS, TRAIN, Bench, Outcome, case, numbers
from experiments.faults.calls import saves

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), fs/ext4/ext4.h of Linux
NO_LOG_FLUSH = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH, there
IMAGE = 300 << 20  # bytes
# Checkpoints kept, seconds between saves, seconds from the last save to the cut
AFTER = ((1, 0, 0), (1, 0, 0.5), (1, 1, 0), (1, 7, 3), (2, 0, 0), (2, 0, 0.5), (2, 1, 0), (2, 7, 3))


class Disk:
    """An ext4 of its own."""

    def __init__(self, folder: Path):
        self.image, self.folder = folder.with_suffix(".img"), folder
        folder.mkdir(exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(IMAGE)
        _command("mkfs.ext4", "-q", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount it; after a cut the kernel replays the journal."""
        _command("mount", "-o", "loop", str(self.image), str(self.folder))

    def cut(self) -> None:
        """Cut the power: nothing is written any more."""
        opened = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(opened, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(opened)

    def unmount(self) -> None:
        """Unmount it as soon as no process uses it."""
        command = ["umount", str(self.folder)]
        began = time.monotonic()
        while subprocess.run(command, capture_output=True).returncode:
            assert time.monotonic() - began < ENOUGH, f"{self.folder} stays mounted"
            time.sleep(0.1)


@contextmanager
def ext4(folder: Path) -> Iterator[Disk]:
    """A disk, until its end."""
    disk = Disk(folder)
    try:
        yield disk
    finally:
        disk.unmount()
        disk.image.unlink()


@case
def power(bench: Bench) -> Outcome:
    """Power cuts after and within saves, and of runs of the command line."""
    good = sum(_after_saves(bench, *given) for given in AFTER)
    within = [_within_a_save(bench) for _ in range(2)]
    runs = [_run(bench, STEPS), _run(bench, STEPS // 2)]
    good += sum(within) + sum(runs)
    tried = len(AFTER) + len(within) + len(runs)
    return Outcome("power cut, ext4 on a loop device", tried, good, "steps since the last save")


def _after_saves(bench: Bench, keep: int, gap: float, delay: float) -> bool:
    """True if the last of three saves is restored."""
    with ext4(bench.folder / "power") as disk:
        process = saves("save", disk.folder / "checkpoints", keep, 3, gap)
        while _saved(process) < 3:
            pass
        time.sleep(delay)
        disk.cut()
        return _restored(disk, process) == 3


def _within_a_save(bench: Bench) -> bool:
    """True if no step that was said to be saved is lost, of endless saves."""
    with ext4(bench.folder / "power") as disk:
        process = saves("save", disk.folder / "checkpoints", 1, 100_000, 0)
        last, saved = bench.random.randrange(5, 25), 0
        while saved < last:
            saved = _saved(process)
        time.sleep(bench.random.random() / 4)
        disk.cut()
        return _restored(disk, process) >= saved


def _saved(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().split()[1])


def _restored(disk: Disk, process: subprocess.Popen[str]) -> int:
    process.kill()
    process.communicate()
    disk.unmount()
    disk.mount()
    out, _ = saves("restore", disk.folder / "checkpoints").communicate(timeout=ENOUGH)
    return int(out)


def _run(bench: Bench, last: int) -> bool:
    """True if a run whose power is cut after a step goes on to the numbers of the undisturbed."""
    with ext4(bench.folder / "power") as disk:
        folder = disk.folder / "run"
        process = bench.train(folder)
        bench.at_step(process, folder, last)
        if last == STEPS:
            bench.end(process)
        disk.cut()
        process.kill()
        bench.end(process)
        disk.unmount()
        disk.mount()
        if last < STEPS:
            return bench.finish(folder)
        done = bench.run(*TRAIN, "--run-dir", folder, "--resume")
        whole = (folder / "measured.json").stat().st_size > 0
        return done.returncode == 0 and whole and numbers(folder) == numbers(bench.base)


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
