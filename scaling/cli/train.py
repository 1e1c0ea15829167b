"""`scaling train`: trains a run, with a supervisor beside it where restarts are wanted."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import scaling as sc
from scaling.api.request import typed_words
from scaling.meshes.errors import InputError, check_range
from scaling.run.own import OwnRun
from scaling.training.launch.supervisor import STUCK

MOST_CODE = 125  # exit codes above are the shell's own (POSIX)
OTHER_CODES = {1: "failed", 2: "was given bad input", STUCK: "was stuck"}  # of `scaling.cli.main`


def train(
    call: "partial[Any]", *, restarts: int = 0, stopped_code: int = 0, verbose: bool = False
) -> int:
    """Train here, or in a supervised child process that is given the same words.

    Args:
        restarts: start again from the last checkpoint after a crash, up to this many times.
        stopped_code: exit code where a signal stopped the run before its end, for launchers that
            take 0 for the end.
    """
    from scaling.training.launch.broken_pipe import ignore_broken_pipe
    from scaling.training.launch.distributed import job_kind
    from scaling.training.launch.supervisor import BEGAN, die_with_parent, run_with_restarts

    with ignore_broken_pipe():
        if BEGAN in os.environ:  # this process has a supervisor
            die_with_parent()
        elif restarts or job_kind(os.environ):
            folder = _run_and_folder(**call.keywords)[1]
            return run_with_restarts(typed_words(), restarts, folder, stopped_code=stopped_code)
        return train_here(call, stopped_code)


def train_here(call: "partial[Any]", stopped_code: int) -> int:
    """Train in this process; returns the exit code."""
    from scaling.api.train import report
    from scaling.compile.quiet import quiet
    from scaling.training.launch.distributed import NotJoined
    from scaling.training.launch.supervisor import LOST

    run, folder = _run_and_folder(**call.keywords)
    check_stopped_code(stopped_code)
    with quiet():  # imports jax
        from scaling.training.checkpoint.checkpoints import CheckpointError
        from scaling.training.launch.lost_peer import abort, end_with_peers
        from scaling.training.launch.stopping import NotFinite

    changes = ("run", "mesh", "device_order", "set", "steps", "run_dir")  # made in the run already
    given = {name: value for name, value in call.keywords.items() if name not in changes}
    try:
        with end_with_peers(folder):
            outcome = sc.train(run, run_dir=folder, **given)
    except NotJoined as error:
        print(f"error: {error}", file=sys.stderr)
        return LOST
    except CheckpointError as error:
        # Threads that still write to a dead disk would hold an orderly end.
        abort(error, folder)
    except NotFinite as error:
        import jax

        if jax.process_index() == 0:
            print(f"stopped: {error}", file=sys.stderr)
        return 1
    report(outcome)
    return stopped_code if outcome.stopped_by else 0


def _run_and_folder(
    run: str, run_dir: Path | None = None, steps: int | None = None, **options: Any
) -> tuple[sc.Run | OwnRun, Path]:
    from scaling.api.runs import load_trained
    from scaling.training.run_folder import default_folder

    changes = {name: options.get(name) for name in ("mesh", "device_order", "set")}
    resolved = load_trained(run, steps=steps, **changes)
    return resolved, run_dir or default_folder(resolved)


def check_stopped_code(code: int) -> None:
    """Refuse a code that the shell has, or that says something else."""
    check_range("--stopped-code", code, 0, MOST_CODE)
    if code in OTHER_CODES:
        raise InputError(
            f"--stopped-code {code} also says that a run {OTHER_CODES[code]}; choose 0, or 3 to "
            f"{STUCK - 1}"
        )
