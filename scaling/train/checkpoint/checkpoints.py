"""Checkpoints: the sharded state of a run, its place in the data and its description, on disk.

    folder/step_00000200/     written by Orbax: arrays, place in the data, run description
                         checksums.json     written last: bytes and CRC-32 of every file above

`checksums.json` is the commit mark. A folder without it was interrupted and is ignored; one whose
files differ from it is damaged, and the checkpoint before it is used. Saving is asynchronous: the
arrays are copied to host memory before `save` returns, so that the next step may donate them.

This is the only file that imports Orbax.
"""

import errno
import logging
import os
import re
import shutil
import textwrap
import time
import warnings
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from scaling.meshes.errors import InputError
from scaling.train.checkpoint import checksums
from scaling.train.checkpoint.matching import State, check_match, with_shardings
from scaling.train.launch.agreement import all_processes, broadcast_from_first

STEP_FOLDER = re.compile(r"step_(\d{8,})")
REASON_CHARACTERS = 300  # of an error message that lists every detail of a storage driver
POLL = 0.1  # s between looks at a shared folder
LATE = 1.0  # s in which writes end that were under way as another failed (measured: under 0.1 s)

Restored = tuple[State, dict[str, Any], dict[str, Any]]  # state, place in the data, run description


class CheckpointError(InputError):
    """A checkpoint could not be written; the ones before it are whole."""


class Checkpoints:
    """The checkpoints of one run folder: at most one being written, the `keep` newest kept.

    Every process of a job makes one on the same shared folder and calls it at the same steps;
    process 0 writes the commit mark, for which the others wait, and deletes. Use it as a context
    manager, or close it: what is still being written when Python exits is lost.
    """

    def __init__(self, folder: Path | str, keep: int = 2):
        if keep < 1:
            raise InputError(f"keep_checkpoints is {keep}; keep at least 1")
        logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax; what fails is raised
        self.folder = Path(folder).absolute()
        self._keep = keep
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._damaged: set[int] = set()  # steps whose files are not what was written

    def save(
        self, step: int, state: State, iterator_state: dict[str, Any], run: dict[str, Any]
    ) -> None:
        """Start writing a checkpoint; the caller may overwrite or donate the arrays at once.

        Waits for the save before it. A checkpoint of the same step is replaced.

        Args:
            step: optimiser steps done.
            state: pytree of jax arrays, sharded in any way.
            iterator_state: the place in the data, as JSON.
            run: the run description, as JSON.

        Raises:
            CheckpointError: not enough space for this save, or the save before it failed.
        """
        self.wait()
        self._check_space(step, state)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            response = ocp.save_checkpointables_async(
                self._path(step),
                {"state": state},
                overwrite=True,
                custom_metadata={"iterator_state": iterator_state, "run": run},
            )
        except (OSError, ValueError) as error:
            raise self._failure(step, _reason(error)) from error
        self._pending = self._writer.submit(self._commit, step, response)

    def wait(self) -> None:
        """Return when nothing is being written any more.

        Raises:
            CheckpointError: the save in progress failed (disk full, folder gone).
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def finish(self, seconds: float) -> None:
        """Give what is being written some more time; whether it ends well is not asked."""
        if self._pending is not None:
            futures.wait([self._pending], seconds)

    def steps(self) -> list[int]:
        """Steps of the finished checkpoints not known to be damaged, oldest first."""
        marks = self.folder.glob(f"step_*/{checksums.FILE}")
        named = (STEP_FOLDER.fullmatch(mark.parent.name) for mark in marks)
        return sorted({int(match[1]) for match in named if match} - self._damaged)

    def latest(self) -> int | None:
        """The newest committed step, if there is one."""
        return max(self.steps(), default=None)

    def unfinished(self, after: int) -> list[int]:
        """Steps beyond `after` whose saving was interrupted, as far as their folders show."""
        names = (path.name for path in self.folder.glob("step_*") if path.is_dir())
        found = {int(match[1]) for name in names if (match := STEP_FOLDER.match(name))}
        return sorted(step for step in found - {*self.steps()} - self._damaged if step > after)

    def is_whole(self, step: int) -> bool:
        """Whether every file of a finished checkpoint is as it was written."""
        return checksums.damage(self._path(step)) is None

    def restore(self, abstract_state: State, step: int | None = None) -> Restored:
        """Read a checkpoint onto any mesh.

        Args:
            abstract_state: pytree of jax.ShapeDtypeStruct with the shardings wanted; a leaf
                without one is replicated over the mesh of the others.
            step: which one; None for the newest that is whole. Damaged ones are passed over with a
                warning.

        Raises:
            InputError: no checkpoint, none that is whole, or one of another model.
        """
        self.wait()
        candidates = self._candidates(step)
        for candidate, before in zip(candidates, [*candidates[1:], None], strict=True):
            damage = _damage(self._path(candidate))
            if damage is None:
                return self._read(candidate, abstract_state)
            self._damaged.add(candidate)
            then = "" if before is None else f"; going back to step {before}"
            said = f"checkpoint {self._path(candidate)} is damaged: {damage}{then}"
            warnings.warn(said, stacklevel=2)
        raise InputError(
            f"no whole checkpoint in {self.folder}: all of steps {candidates} are damaged. Put the "
            "files back, or start from the beginning in another --run-dir."
        )

    def close(self) -> None:
        """Finish the save in progress and end the thread."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _path(self, step: int) -> Path:
        return self.folder / f"step_{step:08d}"

    def _candidates(self, step: int | None) -> list[int]:
        """Steps to try, best first."""
        steps = self.steps()
        if not steps or step not in (None, *steps):
            wanted = "a finished checkpoint" if step is None else f"the checkpoint of step {step}"
            raise InputError(
                f"no checkpoint: looked for {wanted} (step_*/{checksums.FILE}) in {self.folder}, "
                f"which has {f'steps {steps}' if steps else 'none'}. Check --run-dir, or leave "
                "--resume out to start from the beginning."
            )
        return steps[::-1] if step is None else [step]

    def _read(self, step: int, abstract_state: State) -> Restored:
        """State, place in the data and run description of a checkpoint known to be whole."""
        path = self._path(step)
        metadata = ocp.metadata(path, checkpointable_name="state")
        check_match(metadata.metadata, abstract_state, path)
        state = ocp.load(path, with_shardings(abstract_state), checkpointable_name="state")
        return state, metadata.custom_metadata["iterator_state"], metadata.custom_metadata["run"]

    def _commit(self, step: int, response: ocp.AsyncResponse[None]) -> None:
        """Wait for the files of a step, mark them as whole, delete what is no longer kept."""
        try:
            response.result()
            if jax.process_index() == 0:
                checksums.write(self._path(step))
            else:
                self._wait_for_mark(step)
        except Exception as error:
            self._delete_failed()
            raise self._failure(step, _reason(error)) from error
        self._damaged.discard(step)
        self._delete_unfinished()
        self._delete_old(step)

    def _wait_for_mark(self, step: int) -> None:
        """Return when process 0 has read all files again: minutes, for a large model.

        Going on before it would mean waiting in jax for process 0, with a deadline: at the end of
        the run, or in the next save.

        Raises:
            OSError: process 0 has given up, and deleted the folder.
        """
        path, seen = self._path(step), False
        while not os.path.exists(path / checksums.FILE):  # no error while a server is away
            there = os.path.exists(path)
            if seen and not there:
                raise OSError("process 0 could not finish it")
            seen = there
            time.sleep(POLL)

    def _delete_failed(self) -> None:
        """Delete what a failed save wrote, also what its other writes, not told, make anew.

        Orbax reports the first failure and has no way to wait for the rest. What is later still is
        ignored as unfinished, and deleted after the next save.
        """
        until = time.monotonic() + LATE
        self._delete_unfinished()
        while jax.process_index() == 0 and time.monotonic() < until:
            time.sleep(POLL)
            self._delete_unfinished()

    def _delete_unfinished(self) -> None:
        """Delete what interrupted saves left behind."""
        if jax.process_index() == 0:
            for path in self.folder.glob("step_*"):
                if not (path / checksums.FILE).exists():
                    shutil.rmtree(path, ignore_errors=True)

    def _delete_old(self, saved: int) -> None:
        """Delete damaged checkpoints and all but the newest up to the one just saved."""
        old = [step for step in self.steps() if step <= saved][: -self._keep]
        if jax.process_index() == 0:
            for step in [*old, *self._damaged]:
                shutil.rmtree(self._path(step), ignore_errors=True)
        self._damaged.clear()

    def _check_space(self, step: int, state: State) -> None:
        """Raise CheckpointError if the state cannot fit on the disk (compression not counted)."""
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        if not broadcast_from_first(self._free_bytes() >= needed):
            raise self._failure(step, f"it needs {needed:,} bytes")

    def _free_bytes(self) -> int:
        existing = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        return shutil.disk_usage(existing).free

    def _failure(self, step: int, reason: str) -> CheckpointError:
        """What went wrong, in numbers, and what is left to continue from."""
        last = self.latest()
        return CheckpointError(
            f"checkpoint of step {step} not saved in {self.folder}: {reason}; "
            f"{self._free_bytes():,} bytes are free on that disk. "
            f"Last good checkpoint: {'none' if last is None else f'step {last}'}. "
            "Make room (or choose another --run-dir), then --resume."
        )


def _reason(error: Exception) -> str:
    """An error of the file system or of Orbax in a few words."""
    full = getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)
    return "the disk is full" if full else textwrap.shorten(str(error), REASON_CHARACTERS)


def _damage(path: Path) -> str | None:
    """What is wrong with the files of a checkpoint; all processes come to the same conclusion."""
    damage = checksums.damage(path, jax.process_index(), jax.process_count())
    sound = all_processes(damage is None)
    return None if sound else damage or "another process found a damaged file"
