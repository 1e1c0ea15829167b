"""Jobs of two processes, one of which is killed at a file call, and other numbers of processes."""

import math
import shutil
import socket
import subprocess
from pathlib import Path

from experiments.faults.bench import OFTEN, Bench, Outcome, case, numbers
from experiments.faults.calls import preloaded
from scaling.train.checkpoint.steps import saved_steps

STEPS = 40
TRAIN = ("train", "tiny", "--mesh", "data=2", "--steps", STEPS, *OFTEN)
KILLS = 8
CALLS = 300  # of the first process some 100 belong to a save, of the second 20
RELATIVE = 1e-4  # of losses on one process and on two, which sum in another order


def start_two(
    bench: Bench, folder: Path, *words: object, killed: dict[int, int] | None = None
) -> list[subprocess.Popen[str]]:
    """Start a job of two processes.

    Args:
        killed: process -> its file call in the folder at which it is killed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    given = [*TRAIN, "--run-dir", folder, "--devices", 1, *words]
    calls = killed or {}
    harm = {n: preloaded(bench.folder, FOLDER=folder, AT=at) for n, at in calls.items()}
    return [
        bench.start(*given, env={**common, "JAX_PROCESS_ID": str(n), **harm.get(n, {})})
        for n in range(2)
    ]


def end_two(bench: Bench, processes: list[subprocess.Popen[str]]) -> bool:
    """Wait for both; True if they ended well."""
    return all([bench.end(process).returncode == 0 for process in processes])


@case
def two(bench: Bench) -> Outcome:
    """One of two processes killed at a random file call in the run folder."""
    base, good, unsaved = bench.folder / "two-base", 0, 0
    assert end_two(bench, start_two(bench, base)), "the undisturbed job failed"
    for number in range(KILLS):
        folder, at = bench.folder / f"two-{number}", bench.random.randrange(1, CALLS)
        end_two(bench, start_two(bench, folder, killed={number % 2: at}))
        saved = saved_steps(folder / "checkpoints")
        unsaved += not saved
        if not saved:
            shutil.rmtree(folder)
        ended = end_two(bench, start_two(bench, folder, *(["--resume"] if saved else [])))
        good += ended and numbers(folder) == numbers(base)
        shutil.rmtree(folder)
    lost = f"nothing saved; {unsaved} before the first save"
    return Outcome("SIGKILL of one of two processes at a file call", KILLS, good, lost)


@case
def counts(bench: Bench) -> Outcome:
    """One process, then two, then one, of one run; and a run that does not change."""
    base, folder = bench.folder / "one", bench.folder / "counts"
    devices = ("--devices", 2)
    assert bench.run(*TRAIN, "--run-dir", base, *devices).returncode == 0
    thirds = [("--steps", STEPS * part // 3) for part in (1, 2, 3)]
    first = bench.run(*TRAIN, "--run-dir", folder, *devices, *thirds[0]).returncode == 0
    second = first and end_two(bench, start_two(bench, folder, *thirds[1], "--resume"))
    words = (*TRAIN, "--run-dir", folder, *devices, "--resume", *thirds[2])
    third = second and bench.run(*words).returncode == 0
    ours, theirs = numbers(folder), numbers(base)
    same = third and ours.keys() == theirs.keys()
    same = same and all(
        math.isclose(ours[step][0], loss, rel_tol=RELATIVE) for step, (loss, *_) in theirs.items()
    )
    lost = f"nothing; losses within {RELATIVE:g}"
    return Outcome("1, 2 and 1 processes in one run", 1, int(same), lost)
