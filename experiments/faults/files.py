"""Files that are damaged, missing, foreign, or on a disk that takes no more."""

import os
import shutil
import subprocess
import time

import numpy as np

from experiments.faults.bench import (
    FLIPS,
    SOON,
    STEPS,
    TRAIN,
    Bench,
    Outcome,
    case,
    make_read_only,
    memory_disk,
    numbers,
    refused,
    remount,
)
from scaling.training.run_folder.checksums import find_damage
from scaling.training.run_folder.steps import saved_steps, step_path


@case
def foreign(bench: Bench) -> Outcome:
    """Folders of the user's among the checkpoints, and links in place of the run's files."""
    folder, target = bench.folder / "foreign", bench.folder / "precious.json"
    bench.stopped(folder, STEPS // 3)
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
    bench.stopped(folder, STEPS // 2)
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
        bench.stopped(folder, STEPS // 2)
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
