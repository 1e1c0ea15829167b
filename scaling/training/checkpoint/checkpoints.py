"""Checkpoints of a run: its sharded state, its place in the data and its description.

    folder/step_00000200/     written by Orbax: arrays, place in the data, run description
                              checksums_0.json: bytes and CRC-32 of the files above
           .written           what this run wrote, and may delete

Orbax gives a folder its name when all processes have written: a folder with another name was
interrupted and is ignored. A checkpoint whose files differ from their checksums is damaged, and the
one before it is used. Saving is asynchronous: the arrays are copied to host memory before `save`
returns, so that the next step may donate them.

A checkpoint replaces older ones only when it was seen to be whole. In the background, in order:

    Orbax      writes the files, gives the folder its name, syncs the arrays and nothing else
    each       process sums its files, syncs them and all folders, reads them back from the disk,
               writes checksums_N.json and syncs it
    process 0  has seen the sums of all, finds every array by Orbax's own means, deletes old ones

Orbax saves and loads one step. Its `training.Checkpointer` (0.12.8, in `experimental`) would also
keep the newest, but deletes older steps when a new one has its name: before it is on the disk.
"""

import errno
import logging
import os
import shutil
import time
import warnings
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from scaling.meshes.durable import sync
from scaling.meshes.errors import InputError
from scaling.training.checkpoint import read
from scaling.training.checkpoint.read import Restored, State
from scaling.training.launch.consensus import all_processes, broadcast_from_first
from scaling.training.run_folder import steps
from scaling.training.run_folder.checksums import find_damage, unsummed, write_checksums
from scaling.training.run_folder.folder import check_path
from scaling.training.run_folder.steps import step_path

LIMIT = 1200  # s for writing one checkpoint, on the monotonic clock: Orbax's own default
# Orbax counts its limit on the wall clock, which may be set forward at any time: by 56 years where
# a machine without a battery starts in 1970.
NEVER = 100 * 365 * 24 * 3600  # s
POLL = 0.1  # s between looks for the sums of other processes
REASON_CHARACTERS = 300  # of an error message that lists every detail of a storage driver
FULL = "the disk is full"
DENIED = (errno.EPERM, errno.EACCES, errno.EROFS)


class CheckpointError(InputError):
    """A checkpoint could not be written; the ones before it are intact."""


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """The checkpoints of one run folder: at most one being written, the `keep` newest kept.

    Every process of a job makes one on the same shared folder and calls it at the same steps;
    process 0 deletes. Use it as a context manager: what is still being written when Python exits is
    lost.
    """

    def __init__(self, folder: Path | str, keep: int = 2):
        if keep < 1:
            raise InputError(f"keep_checkpoints is {keep}; keep at least 1")
        check_path(Path(folder))
        logging.getLogger("absl").addFilter(_is_not_from_orbax)  # its failures are raised
        self.folder = Path(folder).absolute()
        self._keep = keep
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._damaged: set[int] = set()  # steps whose files differ from their checksums

    def save(
        self, step: int, state: State, iterator_state: dict[str, Any], run: dict[str, Any]
    ) -> None:
        """Start writing a checkpoint; the caller may overwrite or donate the arrays at once.

        Waits for the save before it. A checkpoint of the same step is replaced.

        Args:
            step: optimiser steps done.
            state: arrays, sharded in any way.
            iterator_state, run: the place in the data and the run description, as JSON.

        Raises:
            CheckpointError: not enough space for this save, or the save before it failed.
        """
        self.wait()
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))  # compression not counted
        if not broadcast_from_first(_free_bytes(self.folder) >= needed):
            raise self._failure(step, f"it needs {needed:,} bytes")
        try:
            self.folder.mkdir(exist_ok=True)  # a run folder that was moved is not made anew
            sync(self.folder.parent)
            mark = steps.begin(self.folder, step) if jax.process_index() == 0 else ""
            metadata = {"iterator_state": iterator_state, "run": run, "mark": mark}
            context = ocp.Context()
            # Its folder is made at once: Orbax's threads wait five minutes for one.
            context.asynchronous.create_directories_asynchronously = False
            context.asynchronous.timeout_secs = NEVER
            with context:
                response = ocp.save_checkpointables_async(
                    step_path(self.folder, step),
                    {"state": state},
                    overwrite=True,
                    custom_metadata=metadata,
                )
        except (OSError, ValueError) as error:
            raise self._failure(step, error) from error
        self._pending = self._writer.submit(self._commit, step, response, read.describe(state))

    def wait(self) -> None:
        """Return when nothing is being written any more.

        Raises:
            CheckpointError: the save in progress failed (disk full, folder gone).
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def finish(self, seconds: float) -> None:
        """Give the save in progress up to `seconds` more; its failure is ignored."""
        if self._pending is not None:
            futures.wait([self._pending], seconds)

    def steps(self) -> list[int]:
        """Steps of the saved checkpoints not known to be damaged, ascending."""
        return sorted({*steps.saved_steps(self.folder)} - self._damaged)

    def latest(self) -> int | None:
        """The newest of `steps`; None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, abstract_state: State, partial: bool = False) -> Restored:
        """Read the newest intact checkpoint onto any mesh; damaged ones are named in a warning.

        Args:
            abstract_state: pytree of jax.ShapeDtypeStruct with the shardings wanted.
            partial: the checkpoint may hold more arrays, which are not read.

        Raises:
            InputError: no checkpoint, none that is intact, or one of another model.
        """
        self.wait()
        candidates = self.steps()[::-1]
        if not candidates:
            raise InputError(
                f"no checkpoint (step_*) in {self.folder}. Check --run-dir, or leave --resume out "
                "to start from the beginning."
            )
        for candidate, before in zip(candidates, [*candidates[1:], None], strict=True):
            path = step_path(self.folder, candidate)
            damage = find_damage(path, jax.process_index(), jax.process_count())
            restored: Restored | str = damage or "another process found a damaged file"
            if all_processes(damage is None):
                restored = read.read_or_damage(path, abstract_state, partial)
            if not isinstance(restored, str):
                return restored
            self._damaged.add(candidate)
            then = "" if before is None else f"; going back to step {before}"
            warnings.warn(f"checkpoint {path} is damaged: {restored}{then}", stacklevel=2)
        raise InputError(
            f"no intact checkpoint in {self.folder}: all of steps {candidates} are damaged. Put "
            "the files back, or start from the beginning in another --run-dir."
        )

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Finish the save in progress and end the thread."""
        with suppress(CheckpointError) if kind else nullcontext():  # the first error is told
            try:
                self.wait()
            finally:
                self._writer.shutdown()

    def _commit(self, step: int, response: ocp.AsyncResponse[None], saved: read.Described) -> None:
        """Wait until the disk has a step and gives it back; then delete what is no longer kept."""
        path, deadline = step_path(self.folder, step), time.monotonic() + LIMIT
        is_first = jax.process_index() == 0
        try:
            response.result(LIMIT)
            write_checksums(path, jax.process_index())
            if is_first:
                _await_others(path, deadline)
                if differs := read.difference(read.described(path)[0], saved):
                    raise ValueError(f"Orbax does not find again what it saved: {differs}")
        except Exception as error:
            if time.monotonic() >= deadline:  # a disk that does not answer is not asked again
                raise CheckpointError(
                    f"checkpoint of step {step} not saved in {self.folder}: it took more than "
                    f"{LIMIT / 60:.0f} minutes. Look after that disk or file server, then go on "
                    "from the last checkpoint with --resume; without one, start again in another "
                    "--run-dir."
                ) from error
            if is_first:
                steps.forget(self.folder, step)
                steps.delete(self.folder, [step], failed=True)
            raise self._failure(step, error) from error
        self._damaged.discard(step)
        if is_first:
            own = [saved for saved in steps.own_steps(self.folder) if saved <= step]
            old = [saved for saved in own if saved not in self._damaged][: -self._keep]
            steps.delete(self.folder, [*old, *self._damaged])

    def _failure(self, step: int, error: Exception | str) -> CheckpointError:
        """The error with its numbers, and how to go on.

        `error` is the file system's or Orbax's; or in words, of a disk with too little room.
        """
        code, is_full = getattr(error, "errno", None), isinstance(error, str)
        reason = error if isinstance(error, str) else shorten(str(error), REASON_CHARACTERS)
        if code == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error):
            reason, is_full = FULL, True
        remedy = "Make the folder writable" if code in DENIED else "Look after that disk"
        return CheckpointError(
            f"checkpoint of step {step} not saved in {self.folder}: {reason}; "
            f"{_free_bytes(self.folder):,} bytes are free on that disk. "
            f"{'Make room' if is_full else remedy}; "
            f"{steps.how_to_go_on(self.folder.parent, self._damaged)}"
        )


def _await_others(path: Path, deadline: float) -> None:
    """Return when every process has summed its files; TimeoutError at `deadline` (monotonic)."""
    while missing := unsummed(path, jax.process_count()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {missing} have not summed their files")
        time.sleep(POLL)


def _free_bytes(folder: Path) -> int:
    """Bytes that are free on the disk of a folder, which need not be there yet."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Filter of absl's log, which Orbax fills with every detail of its work."""
    return f"{os.sep}orbax{os.sep}" not in record.pathname
