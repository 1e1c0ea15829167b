"""Checkpoints of a run: its sharded state, its place in the data and its description.

    folder/step_00000200/     written by Orbax: arrays, place in the data, run description
                              checksums_0.json: bytes and CRC-32 of the files above
           .written           what this run wrote, and may delete

Orbax gives a folder its name when all processes have written: a folder with another name was
interrupted and is ignored. A checkpoint whose files differ from their checksums is damaged, and the
one before it is used. Saving is asynchronous: the arrays are copied to host memory before `save`
returns, so that the next step may donate them.

This is the only file that imports Orbax.
"""

import logging
import os
import time
import warnings
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from scaling.meshes.errors import InputError
from scaling.train.checkpoint.checksums import find_damage, write_checksums
from scaling.train.checkpoint.failure import CheckpointError, failure, free_bytes, no_answer
from scaling.train.checkpoint.steps import saved_steps, step_path
from scaling.train.checkpoint.written import begin, delete, forget, own_steps
from scaling.train.launch.agreement import all_processes, broadcast_from_first
from scaling.weights.naming import to_dict

LIMIT = 1200  # s for writing one checkpoint, on the monotonic clock: Orbax's own default
# Orbax counts its limit on the wall clock, which may be set forward at any time: by 56 years where
# a machine without a battery starts in 1970.
NEVER = 100 * 365 * 24 * 3600  # s

State = Any  # a pytree of jax arrays
Restored = tuple[State, dict[str, Any], dict[str, Any]]  # state, place in the data, run description


class Checkpoints:
    """The checkpoints of one run folder: at most one being written, the `keep` newest kept.

    Every process of a job makes one on the same shared folder and calls it at the same steps;
    process 0 deletes. Use it as a context manager, or close it: what is still being written when
    Python exits is lost.
    """

    def __init__(self, folder: Path | str, keep: int = 2):
        if keep < 1:
            raise InputError(f"keep_checkpoints is {keep}; keep at least 1")
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
        self._check_space(step, state)
        try:
            self.folder.mkdir(exist_ok=True)  # a run folder that was moved is not made anew
            mark = begin(self.folder, step) if jax.process_index() == 0 else ""
            metadata = {"iterator_state": iterator_state, "run": run, "mark": mark}
            with _save_options():
                response = ocp.save_checkpointables_async(
                    step_path(self.folder, step),
                    {"state": state},
                    overwrite=True,
                    custom_metadata=metadata,
                )
        except (OSError, ValueError) as error:
            raise self._failure(step, error) from error
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
        """Give the save in progress up to `seconds` more; its failure is ignored."""
        if self._pending is not None:
            futures.wait([self._pending], seconds)

    def steps(self) -> list[int]:
        """Steps of the saved checkpoints not known to be damaged, ascending."""
        return sorted({*saved_steps(self.folder)} - self._damaged)

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
            damage = _agreed_damage(path)
            if damage is None:
                return _read(path, abstract_state, partial)
            self._damaged.add(candidate)
            then = "" if before is None else f"; going back to step {before}"
            warnings.warn(f"checkpoint {path} is damaged: {damage}{then}", stacklevel=2)
        raise InputError(
            f"no intact checkpoint in {self.folder}: all of steps {candidates} are damaged. Put "
            "the files back, or start from the beginning in another --run-dir."
        )

    def close(self) -> None:
        """Finish the save in progress and end the thread."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with suppress(CheckpointError) if kind else nullcontext():  # the first error is told
            self.close()

    def _commit(self, step: int, response: ocp.AsyncResponse[None]) -> None:
        """Wait for the files of a step, sum them, delete what is no longer kept."""
        began = time.monotonic()
        try:
            response.result(LIMIT)
            write_checksums(step_path(self.folder, step), jax.process_index())
        except Exception as error:
            if time.monotonic() - began >= LIMIT:  # a disk that does not answer is not asked again
                raise no_answer(self.folder, step, LIMIT) from error
            if jax.process_index() == 0:
                forget(self.folder, step)
                delete(self.folder, [step], failed=True)
            raise self._failure(step, error) from error
        self._damaged.discard(step)
        if jax.process_index() == 0:
            own = [saved for saved in own_steps(self.folder) if saved <= step]
            old = [saved for saved in own if saved not in self._damaged][: -self._keep]
            delete(self.folder, [*old, *self._damaged])

    def _check_space(self, step: int, state: State) -> None:
        """Raise CheckpointError if the state cannot fit on the disk (compression not counted)."""
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        if not broadcast_from_first(free_bytes(self.folder) >= needed):
            raise self._failure(step, f"it needs {needed:,} bytes")

    def _failure(self, step: int, error: Exception | str) -> CheckpointError:
        return failure(self.folder, step, error, self.latest())


def _save_options() -> ocp.Context:
    """How Orbax saves: its folder is made at once, for its threads wait five minutes for one."""
    context = ocp.Context()
    context.asynchronous.create_directories_asynchronously = False
    context.asynchronous.timeout_secs = NEVER
    return context


def place_in_data(path: Path) -> dict[str, Any]:
    """What a checkpoint holds beside its arrays as the place in the data; {} if it is damaged."""
    try:
        place: dict[str, Any] = ocp.metadata(path.absolute()).custom_metadata["iterator_state"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return place


def _read(path: Path, abstract_state: State, partial: bool) -> Restored:
    """State, place in the data and run description of an intact checkpoint."""
    context = ocp.Context()
    context.pytree.loading.partial_load = partial
    try:
        metadata = ocp.metadata(path, checkpointable_name="state")
        place, run = (dict(metadata.custom_metadata[key]) for key in ("iterator_state", "run"))
        _check_match(metadata.metadata, abstract_state, path, partial)
        with context:
            return ocp.load(path, abstract_state, checkpointable_name="state"), place, run
    except InputError:
        raise
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"checkpoint {path} cannot be read, though its files are as their checksums say: "
            f"another program or version of Orbax wrote it ({error!r:.300})"
        ) from None


def _check_match(saved: State, wanted: State, path: Path, partial: bool) -> None:
    """Raise InputError with the first array in which a checkpoint differs from the run."""
    there, here = (
        {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in to_dict(state).items()}
        for state in (saved, wanted)
    )
    for name in here if partial else {**here, **there}:
        if here.get(name) != there.get(name):
            raise InputError(
                f"checkpoint {path} belongs to another run: {name} is "
                f"{there.get(name, 'missing')} there and {here.get(name, 'missing')} here. "
                "Resume with the model and optimizer it was saved with (run.json beside it), or "
                "start in another --run-dir."
            )


def _agreed_damage(path: Path) -> str | None:
    """Damage to the files of a checkpoint; all processes return None, or none does."""
    damage = find_damage(path, jax.process_index(), jax.process_count())
    intact = all_processes(damage is None)
    return None if intact else damage or "another process found a damaged file"


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Filter of absl's log, which Orbax fills with every detail of its work."""
    return f"{os.sep}orbax{os.sep}" not in record.pathname
