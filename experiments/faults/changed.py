"""Run folders that are moved or copied, also while they are written; and settings that changed."""

import shutil
import subprocess

from experiments.faults.bench import STEPS, TRAIN, Bench, Outcome, case, numbers, refused
from scaling.training.run_folder.steps import saved_steps

COPIES = 6  # made while the run goes on
BATCH = ("--set", "batch.global_batch=4")  # another one than the recipe's


@case
def moved(bench: Bench) -> Outcome:
    """A folder moved, and copied, between a run and its `--resume`: all go on alike."""
    folder, away = bench.folder / "moved", bench.folder / "elsewhere" / "renamed"
    bench.stopped(folder, STEPS // 2)
    away.parent.mkdir()
    shutil.copytree(folder, bench.folder / "copied")
    shutil.move(folder, away)
    good = bench.finish(away) + bench.finish(bench.folder / "copied")
    return Outcome("run folder moved, copied", 2, good, "nothing")


@case
def copies(bench: Bench) -> Outcome:
    """A folder copied file by file while the run writes to it: the copy goes on from a save."""
    folder, good, none = bench.folder / "copies", 0, 0
    process = bench.train(folder)
    made = []
    for number in range(COPIES):
        bench.at_step(process, folder, STEPS * (number + 1) // (COPIES + 1))
        made.append(bench.folder / f"copy-{number}")
        subprocess.run(["cp", "-a", folder, made[-1]], capture_output=True)  # some files vanish
    bench.end(process)
    for copy in made:
        saved = saved_steps(copy / "checkpoints")
        none += not saved
        done = bench.run(*TRAIN, "--run-dir", copy, "--resume")
        right = done.returncode == 0 and numbers(copy) == numbers(bench.base)
        good += right or refused(done, 2, "no intact checkpoint" if saved else "no finished")
        shutil.rmtree(copy)
    lost = f"nothing of the run; {none} copies without a checkpoint, and a line that says so"
    return Outcome("run folder copied while it is written", COPIES, good, lost)


@case
def batch(bench: Bench) -> Outcome:
    """Another global batch with `--resume`: refused, and the run goes on as it was."""
    folder = bench.folder / "batch"
    bench.stopped(folder, STEPS // 2)
    done = bench.run(*TRAIN, *BATCH, "--run-dir", folder, "--resume")
    good = refused(done, 2, "global_batch 8, this run has 4") and bench.finish(folder)
    return Outcome("another global batch", 1, int(good), "nothing: refused")
