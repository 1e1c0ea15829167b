"""Jobs of two processes, one of which is killed at a file call, and other numbers of processes."""

import math
import shutil
import socket
import subprocess
from pathlib import Path

from experiments.faults.bench import OFTEN, Bench, Outcome, case, numbers
from experiments.faults.calls import preloaded
from scaling.training.run_folder.steps import saved_steps

STEPS = 90
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
    base, unsaved, wrong = bench.folder / "two-base", 0, []
    assert end_two(bench, start_two(bench, base)), "the undisturbed job failed"
    for number in range(KILLS):
        folder, at = bench.folder / f"two-{number}", bench.random.randrange(1, CALLS)
        end_two(bench, start_two(bench, folder, killed={number % 2: at}))
        saved = saved_steps(folder / "checkpoints")
        unsaved += not saved
        if not saved:
            shutil.rmtree(folder)
        ended = end_two(bench, start_two(bench, folder, *(["--resume"] if saved else [])))
        if not ended or numbers(folder) != numbers(base):
            wrong.append(f"process {number % 2} at call {at}, ended {ended}, saved {saved}")
        shutil.rmtree(folder)
    lost = "; ".join(wrong) or f"nothing saved; {unsaved} before the first save"
    name = "SIGKILL of one of two processes at a file call"
    return Outcome(name, KILLS, KILLS - len(wrong), lost)


@case
def counts(bench: Bench) -> Outcome:
    """One process, then two, then one, of one run; and a run that does not change."""
    base, folder = bench.folder / "one", bench.folder / "counts"
    alone = (*TRAIN, "--devices", 2, "--run-dir")
    assert bench.run(*alone, base).returncode == 0
    _stopped(bench, [bench.start(*alone, folder)], folder, STEPS // 3)
    _stopped(bench, start_two(bench, folder, "--resume"), folder, 2 * STEPS // 3)
    ended = bench.run(*alone, folder, "--resume").returncode == 0
    ours, theirs = numbers(folder), numbers(base)
    same = ended and ours.keys() == theirs.keys()
    same = same and all(
        math.isclose(ours[step][0], loss, rel_tol=RELATIVE) for step, (loss, *_) in theirs.items()
    )
    written = {len(lines) for lines in (numbers(folder / "process_1"), ours)}
    lost = f"nothing; losses within {RELATIVE:g}; process 1 wrote {min(written)} of {STEPS} steps"
    return Outcome("1, 2 and 1 processes in one run", 1, int(same and min(written) > 0), lost)


def _stopped(bench: Bench, processes: list, folder: Path, step: int) -> None:
    bench.at_step(processes[0], folder, step)
    for process in processes:
        process.terminate()
    for process in processes:
        bench.end(process)
