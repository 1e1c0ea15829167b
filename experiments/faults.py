"""Faults of a training run, tried from outside: what survives them, what is lost.

    python -m experiments.faults [--out experiments/results] [--only kill,disk] [--seed 0]

Each case trains the recipe `tiny` with commands as a user types them, does the harm, and goes on
with `--resume` to the end. A run has survived if every line of its metrics then has the loss and
the gradient norm, to the last digit, of a run that nothing happened to; what must end a run must
do so with its exit code and one message, without a traceback. Disks are filled and remounted on
file systems in memory, which needs root; without it those cases are left out and say so.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np

from scaling.profiles.machine import versions
from scaling.train.checkpoint.checksums import find_damage
from scaling.train.checkpoint.steps import TEMPORARY, saved_steps, step_path

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
        self.base = folder / "base"
        done = self.run(*TRAIN, "--run-dir", self.base)
        assert done.returncode == 0, done.stderr

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start `scaling WORDS`."""
        command = [sys.executable, "-m", "scaling", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, stdout=pipe, stderr=pipe, text=True)

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


@case
def kill(bench: Bench) -> Outcome:
    """SIGKILL at a random moment, again and again in one folder."""
    folder, inside = bench.folder / "kill", 0
    checkpoints = folder / "checkpoints"
    for _ in range(KILLS):
        process = bench.train(folder, *(["--resume"] if saved_steps(checkpoints) else []))
        last = last_step(folder) + bench.random.randrange(1, STEPS // KILLS + 1)
        bench.at_step(process, folder, last)
        process.kill()
        bench.end(process)
        inside += any(TEMPORARY in path.name for path in checkpoints.glob("step_*"))
        if not saved_steps(checkpoints):
            shutil.rmtree(folder)  # nothing was saved: a new run
    good = KILLS if bench.finish(folder) else 0
    return Outcome(
        "SIGKILL at random moments, one folder",
        KILLS,
        good,
        f"nothing; {inside} in the middle of a save",
    )


@case
def signals(bench: Bench) -> Outcome:
    """SIGTERM, SIGINT, two SIGINTs, SIGHUP and SIGSTOP with SIGCONT in the middle of a run."""
    sent = {"TERM": 0, "INT": 0, "INT INT": 130, "STOP CONT TERM": 0}
    good = 0
    for names, code in sent.items():
        folder = bench.folder / f"signals-{names.replace(' ', '-')}"
        process = bench.train(folder)
        bench.at_step(process, folder, STEPS // 3)
        for name in names.split():
            process.send_signal(signal.Signals[f"SIG{name}"])
            time.sleep(0.1)
        done = bench.end(process)
        good += done.returncode in (0, code) and bench.finish(folder)
    return Outcome(f"signals: {', '.join(sent)}", len(sent), good, "of two SIGINTs the last steps")


@case
def restarts(bench: Bench) -> Outcome:
    """SIGKILL of the training process under `--restarts`."""
    folder = bench.folder / "restarts"
    process = bench.train(folder, "--restarts", 3)
    for step in (STEPS // 4, STEPS // 2, 3 * STEPS // 4):
        bench.at_step(process, folder, step)
        subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
        time.sleep(1.0)
    done = bench.end(process)
    good = done.returncode == 0 and numbers(folder) == numbers(bench.base)
    return Outcome("SIGKILL of the child under --restarts 3", 3, 3 * good, "nothing")


@case
def writers(bench: Bench) -> Outcome:
    """Two trainers started together in a new folder; a third while one of them trains."""
    folder = bench.folder / "writers"
    both = [bench.train(folder), bench.train(folder)]
    ended = [bench.end(process) for process in both]
    codes = sorted(done.returncode for done in ended)
    second = next((done for done in ended if done.returncode), ended[0])
    good = codes == [0, 2] and refused(second) and numbers(folder) == numbers(bench.base)
    return Outcome("two trainers started together", 1, int(good), f"exit codes {codes}")


@case
def foreign(bench: Bench) -> Outcome:
    """Folders of the user's among the checkpoints, and links in place of the run's files."""
    folder, target = bench.folder / "foreign", bench.folder / "precious.json"
    process = bench.train(folder)
    bench.at_step(process, folder, STEPS // 3)
    process.terminate()
    bench.end(process)
    checkpoints = folder / "checkpoints"
    kept = ["step_notes", "step_00000001_before_surgery", "step_00000001", "copy"]
    for name in kept:
        (checkpoints / name).mkdir(parents=True)
        (checkpoints / name / "mine").write_text("precious")
    links = ["environment.json", "predicted.json", "measured.json", "run.json"]
    for name in links:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    target.write_text("precious")
    good = bench.finish(folder) and target.read_text() == "precious"
    good &= [path.read_text() for path in checkpoints.rglob("mine")] == ["precious"] * len(kept)
    tried = len(kept) + len(links)
    return Outcome("the user's folders, links", tried, tried * good, "nothing")


@case
def gone(bench: Bench) -> Outcome:
    """The run folder, or its checkpoints, deleted or renamed under the trainer."""
    good = 0
    for name in ("deleted", "renamed"):
        folder = bench.folder / name
        process = bench.train(folder)
        bench.at_step(process, folder, STEPS // 3)
        away = folder.rename(bench.folder / f"{name}-away")
        if name == "deleted":
            shutil.rmtree(away, ignore_errors=True)
        done = bench.end(process)
        anew = (folder / "metrics.jsonl").exists() or saved_steps(folder / "checkpoints")
        good += refused(done) and not anew
        if name == "renamed":
            good -= not bench.finish(away)
    return Outcome("run folder deleted, renamed", 2, good, "the deleted one")


@case
def disk(bench: Bench) -> Outcome:
    """Disks that are full, lack inodes or become read-only in the middle of a run."""
    harms = {
        "full": ("size=3m", "size=200m"),
        "inodes": ("nr_inodes=24", "nr_inodes=10000"),
        "read-only": ("size=200m", ""),
    }
    good, slowest = 0, 0.0
    for name, (options, cure) in harms.items():
        with memory_disk(bench.folder / f"disk-{name}", options) as mounted:
            folder = mounted / "run"
            process = bench.train(folder)
            if name == "read-only":
                bench.at_step(process, folder, STEPS // 3)
                make_read_only(folder / "checkpoints")
            said = process.stderr.readline() if process.stderr else ""
            while said and not said.startswith("error"):
                said = process.stderr.readline() if process.stderr else ""
            began = time.monotonic()
            done = bench.end(process)
            slowest = max(slowest, time.monotonic() - began)
            if cure:
                remount(mounted, cure)
            else:
                subprocess.run(["umount", "-l", str(folder / "checkpoints")], check=True)
            ended = done.returncode == 2 and "Traceback" not in done.stderr
            saved = bool(saved_steps(folder / "checkpoints"))
            if not saved:
                shutil.rmtree(folder, ignore_errors=True)
            words = ["--resume"] if saved else []
            again = bench.end(bench.train(folder, *words))
            good += ended and again.returncode == 0 and numbers(folder) == numbers(bench.base)
    good *= slowest < SOON
    lost = f"nothing after room; the end came {slowest:.1f} s behind the message at most"
    return Outcome("disk full, no inodes, read-only", len(harms), good, lost)


@case
def damage(bench: Bench) -> Outcome:
    """Bits turned, files cut, emptied, lengthened and deleted in a checkpoint."""
    folder = step_path(bench.base / "checkpoints", STEPS)
    files = [p for p in folder.rglob("*") if p.is_file() and "checksums" not in p.name]
    noticed = 0
    for number in range(FLIPS):
        path = bench.random.choice([file for file in files if file.stat().st_size])
        whole = path.read_bytes()
        spot = bench.random.randrange(len(whole))
        turned = bytes([whole[spot] ^ 1 << bench.random.randrange(8)])
        harms = [whole[:spot] + turned + whole[spot + 1 :], whole[:spot], b"", whole + b"0", None]
        harm = harms[min(number % 10, 4)] if number % 2 else harms[0]
        path.unlink() if harm is None else path.write_bytes(harm)
        noticed += find_damage(folder) is not None
        path.write_bytes(whole)
    assert find_damage(folder) is None
    return Outcome("a file of a checkpoint damaged", FLIPS, noticed, "nothing: all are noticed")


@case
def newest(bench: Bench) -> Outcome:
    """The newest checkpoint damaged: the one before it is used, and the numbers are the same."""
    folder = bench.folder / "newest"
    process = bench.train(folder)
    bench.at_step(process, folder, STEPS // 2)
    process.terminate()
    bench.end(process)
    last = step_path(folder / "checkpoints", max(saved_steps(folder / "checkpoints")))
    large = max((p for p in last.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    large.write_bytes(large.read_bytes()[:-1])
    return Outcome(
        "the newest checkpoint damaged", 1, int(bench.finish(folder)), "its steps, again"
    )


@case
def metrics(bench: Bench) -> Outcome:
    """metrics.jsonl torn, gone, or with rubbish inside, before `--resume`."""
    good = 0
    for name in ("torn", "gone", "rubbish"):
        folder = bench.folder / f"metrics-{name}"
        process = bench.train(folder)
        bench.at_step(process, folder, STEPS // 2)
        process.terminate()
        bench.end(process)
        path = folder / "metrics.jsonl"
        text = path.read_bytes()
        middle = text.index(b"\n", len(text) // 2)
        harm = {
            "torn": text[:-20],
            "gone": None,
            "rubbish": text[:middle] + b"\nrubbish" + text[middle:],
        }
        path.unlink() if harm[name] is None else path.write_bytes(harm[name] or b"")
        done = bench.end(bench.train(folder, "--resume"))
        ours, expected = numbers(folder), numbers(bench.base)
        if name == "gone":
            expected = {step: expected[step] for step in ours}
        named = name != "rubbish" or "metrics.jsonl:" in done.stderr
        good += done.returncode == 0 and named and ours == expected
    return Outcome("metrics torn, gone, with rubbish", 3, good, "of deleted ones the lines before")


@case
def data(bench: Bench) -> Outcome:
    """Data that changed between a run and its `--resume`, or is cut while it is read."""
    tokens = np.random.default_rng(0).integers(0, 256, 200_000).astype(np.uint16)
    good = 0
    for name in ("same length", "longer", "cut while read"):
        folder, path = bench.folder / f"data {name}", bench.folder / f"{name}.uint16.bin"
        tokens.tofile(path)
        given = ("--set", f"train.data={path}")
        process = bench.train(folder, *given)
        bench.at_step(process, folder, STEPS // 2)
        if name == "cut while read":
            os.truncate(path, 1000)
            done = bench.end(process)
            good += done.returncode in (1, 2) and "Traceback" not in done.stderr
            continue
        process.terminate()
        bench.end(process)
        changed = (tokens[::-1] if name == "same length" else np.append(tokens, tokens[:9])).copy()
        changed.tofile(path)
        good += refused(bench.end(bench.train(folder, *given, "--resume")))
    return Outcome("data changed, cut while read", 3, good, "nothing: each is named")


@case
def ending(bench: Bench) -> Outcome:
    """measured.json missing at the end, as where it could not be written: made again."""
    folder = bench.folder / "ending"
    shutil.copytree(bench.base, folder)
    (folder / "measured.json").unlink()
    done = bench.run(*TRAIN, "--run-dir", folder, "--resume")
    good = done.returncode == 0 and (folder / "measured.json").is_file()
    return Outcome("measured.json missing after the end", 1, int(good), "nothing")


def main() -> None:
    """Run the cases, print the table, and write it with `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder of results; default: print only")
    parser.add_argument("--only", help="cases, joined by commas: " + ", ".join(CASES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CASES)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"JAX_PLATFORMS": "cpu"}
        bench = Bench(Path(place), options.seed)
        for name in names:
            began = time.monotonic()
            try:
                found = CASES[name](bench)
            except (PermissionError, subprocess.CalledProcessError) as error:
                found = Outcome(name, 0, 0, f"left out: {error}")
            rows.append(replace(found, seconds=time.monotonic() - began))
            print(row(rows[-1]), flush=True)
    if options.out:
        folder = options.out / f"{date.today()}-faults"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(report(rows, options.seed))
    sys.exit(any(one.survived < one.tried for one in rows))


def row(outcome: Outcome) -> str:
    """One line of the table."""
    return (
        f"| {outcome.name} | {outcome.tried} | {outcome.survived} | {outcome.lost} "
        f"| {outcome.seconds:.0f} s |"
    )


def report(rows: list[Outcome], seed: int) -> str:
    """The page of the results."""
    made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
    command = f"`python -m experiments.faults --seed {seed}`"
    head = f"# Faults tried\n\n{date.today()}, {made_with}; {command}.\n"
    text = __doc__.split("\n\n", 2)[2] if __doc__ else ""
    table = "\n".join(
        ["| fault | tried | survived | lost | took |", "|---|---|---|---|---|", *map(row, rows)]
    )
    return f"{head}\n{text}\n{table}\n"


if __name__ == "__main__":
    main()
