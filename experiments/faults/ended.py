"""Processes that are killed, stopped or started twice, and folders that vanish under them."""

import shutil
import signal
import subprocess
import time

from experiments.faults.bench import KILLS, STEPS, Bench, Outcome, case, last_step, numbers, refused
from scaling.training.run_folder.steps import TEMPORARY, saved_steps


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
