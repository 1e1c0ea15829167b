"""`scaling train`: trains a run, with a supervisor beside it where restarts are wanted."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

import scaling as sc
from scaling.cli.options import File, Number, RunCommand, Switch, Text, Whole
from scaling.meshes.errors import InputError, check_range

MOST_CODE = 125  # exit codes above are the shell's own (POSIX)
OTHER_CODES = {1: "failed", 2: "was given bad input"}  # of `scaling.cli.main`


@dataclass(frozen=True)
class TrainCommand(RunCommand):
    """Train a run.

    Example: scaling train demo --mesh data=2,fsdp=2,tensor=2 --devices 8
    """

    steps: Number = None
    """Train to this step instead of the run's."""
    run_dir: File = None
    """Where everything is written (default: runs/NAME)."""
    resume: Switch = False
    """Continue from the newest checkpoint in the run folder."""
    devices: Number = None
    """Number of fake host devices, where no accelerator is present."""
    record_profile: Text = None
    """FROM:TO, steps to record with jax.profiler."""
    restarts: Whole = 0
    """Start again from the last checkpoint after a crash, up to this many times."""
    stopped_code: Annotated[int, arg(metavar="CODE")] = 0
    """Exit code where a signal stopped the run before its end, for launchers that take 0 for the
    end."""
    init: File = None
    """Safetensors weights to begin with, in Hugging Face's names: a folder or one file. With
    --resume the checkpoint is taken instead."""
    tensorboard: Switch = False
    """Also write TensorBoard events."""
    wandb: Switch = False
    """Also log to Weights & Biases."""
    allow_changed_data: Switch = False
    """With --resume: go on where files of the data are no longer those that the run began with."""

    verbose: Switch = False
    """Show what the compiler writes to stderr, instead of keeping it in a log."""

    def start(self, words: list[str]) -> int:
        """Train here, or in a supervised child process that is given the same words."""
        from scaling.training.launch.broken_pipe import ignore_broken_pipe
        from scaling.training.launch.distributed import job_kind
        from scaling.training.launch.supervisor import die_with_parent, is_worker, run_with_restarts

        with ignore_broken_pipe():
            if is_worker():
                die_with_parent()
            elif self.restarts or job_kind(os.environ):
                folder = self._run_and_folder()[1]
                stopped = self.stopped_code
                return run_with_restarts(words, self.restarts, folder, stopped_code=stopped)
            return self.execute()

    def execute(self) -> int:
        """Train in this process; returns the exit code."""
        from scaling.api.train import report
        from scaling.compile.quiet import quiet
        from scaling.training.launch.distributed import NotJoined
        from scaling.training.launch.supervisor import LOST

        run, folder = self._run_and_folder()
        check_stopped_code(self.stopped_code)
        with quiet():  # imports jax
            from scaling.training.checkpoint.failure import CheckpointError
            from scaling.training.launch.lost_peer import abort, end_with_peers
            from scaling.training.launch.stopping import NotFinite

        try:
            with end_with_peers(folder):
                outcome = sc.train(
                    run,
                    run_dir=folder,
                    resume=self.resume,
                    devices=self.devices,
                    record_profile=self.record_profile,
                    init=self.init,
                    tensorboard=self.tensorboard,
                    wandb=self.wandb,
                    allow_changed_data=self.allow_changed_data,
                )
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
        report(outcome, run, folder)
        return self.stopped_code if outcome.stopped_by else 0

    def _run_and_folder(self) -> tuple[sc.Run, Path]:
        from scaling.api.train import default_folder
        from scaling.run.recipes import with_steps

        run = with_steps(self.load(), self.steps)
        return run, self.run_dir or default_folder(run)


def check_stopped_code(code: int) -> None:
    """Refuse a code that the shell has, or that says something else."""
    check_range("--stopped-code", code, 0, MOST_CODE)
    if code in OTHER_CODES:
        raise InputError(
            f"--stopped-code {code} also says that a run {OTHER_CODES[code]}; choose 0, or 3 to "
            f"{MOST_CODE}"
        )
