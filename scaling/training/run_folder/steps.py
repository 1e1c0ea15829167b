"""Steps in a folder of checkpoints: which are saved, and which this run wrote. Imports no jax.

checkpoints/step_00000200                          saved: Orbax gives this name at the end
            step_00000300.orbax-checkpoint-tmp     interrupted, or being written
            .written    {"step_00000200": "9f86d081884c7d65",
                         "step_00000300.orbax-checkpoint-tmp": "", ...}   or deleted

A name is recorded in `.written` before its folder is made and struck out once that is gone:
whenever the process is killed, what it leaves is named here. A saved folder also holds the recorded
mark in one of its files, and one that somebody put in its place does not. Others are never deleted.
"""

import itertools
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from scaling.meshes.durable import write_json

TEMPORARY = ".orbax-checkpoint-tmp"  # Orbax's ending
STEP_NAME = re.compile(r"step_(\d{8,})")
INTERRUPTED_NAME = re.compile(rf"step_(\d{{8,}}){re.escape(TEMPORARY)}.*")
RECORD = ".written"
DELETED = ".deleted"  # half of a checkpoint must not have the name of a whole one
MOVED = ".moved"
MARK_BYTES = 8  # random

Record = dict[str, str]  # name of a folder -> its mark; "" of an unfinished one


def step_path(folder: Path, step: int) -> Path:
    """The folder of one checkpoint."""
    return folder / f"step_{step:08d}"


def saved_steps(folder: Path, name: re.Pattern[str] = STEP_NAME) -> list[int]:
    """Steps of the saved checkpoints, or of other folders of these names, ascending."""
    matches = (name.fullmatch(path.name) for path in folder.glob("step_*"))
    return sorted({int(match[1]) for match in matches if match})


def latest_step(folder: Path) -> int | None:
    """The newest saved step; None if there is none."""
    return max(saved_steps(folder), default=None)


def interrupted_steps(folder: Path) -> list[int]:
    """Steps whose saving did not end, ascending."""
    return saved_steps(folder, INTERRUPTED_NAME)


def how_to_go_on(run_folder: Path, damaged: Collection[int] = ()) -> str:
    """The last checkpoint of a run and how it goes on, to end a message; not of `damaged` steps."""
    saved = max({*saved_steps(run_folder / "checkpoints")} - {*damaged}, default=None)
    if saved is not None:
        return (
            f"the checkpoint of step {saved} is the last: the same command with --resume goes on "
            "from it, on fewer devices with a smaller --mesh"
        )
    if run_folder.is_dir():
        return (
            f"{run_folder} holds no checkpoint: start again in another --run-dir "
            "(train.checkpoint_every says how often to save)"
        )
    return (
        f"{run_folder} is gone: if it was moved, put it back, and go on with --resume if it holds "
        "a checkpoint; else start again"
    )


def begin(folder: Path, step: int) -> str:
    """Record that a step is being saved; returns the mark that its files must hold.

    The run's own folder of that step is deleted. What is not its own and stands in the way is moved
    to another name, with a warning.
    """
    delete(folder, [step])
    final = step_path(folder, step)
    temporary = final.with_name(final.name + TEMPORARY)
    for path in filter(os.path.lexists, (final, temporary)):
        moved = path.rename(_free(path, MOVED))
        warnings.warn(f"{path}, which this run did not write, is now {moved.name}", stacklevel=2)
    mark = secrets.token_hex(MARK_BYTES)
    write_json(folder / RECORD, _read(folder) | {final.name: mark, temporary.name: ""})
    return mark


def forget(folder: Path, step: int) -> None:
    """Delete what a failed save made anew where its folder had been moved or deleted.

    The record that `begin` wrote is gone with it; whoever else saves here writes another first.
    """
    if not (folder / RECORD).exists():
        shutil.rmtree(step_path(folder, step).with_suffix(TEMPORARY), ignore_errors=True)
        with suppress(OSError):  # they hold something
            folder.rmdir()
            folder.parent.rmdir()


def own_steps(folder: Path) -> list[int]:
    """Steps of the saved checkpoints that this run wrote, ascending."""
    record = _read(folder)
    return [step for step in saved_steps(folder) if _is_own(step_path(folder, step), record)]


def delete(folder: Path, steps: list[int], failed: bool = False) -> None:
    """Delete the run's own folders of these steps, and all that it began and did not finish.

    What cannot be deleted stays recorded, and is deleted another time. After a save that `failed`
    all does: threads of Orbax may still write, and make a folder anew.
    """
    record = _read(folder)
    unfinished = [name for name in record if not STEP_NAME.fullmatch(name)]
    for path in (step_path(folder, step) for step in steps):
        if _is_own(path, record):
            deleted = _free(path, DELETED)
            record[deleted.name] = ""
            with suppress(OSError):  # a full disk takes no record, and gets room by this
                write_json(folder / RECORD, record)
            with suppress(OSError):
                unfinished.append(path.rename(deleted).name)
    for name in unfinished:
        shutil.rmtree(folder / name, ignore_errors=True)
    if record and not failed:
        with suppress(OSError):
            write_json(folder / RECORD, _there(folder, record))


def _is_own(path: Path, record: Record) -> bool:
    """True if a saved folder is recorded and one of its files holds its mark."""
    mark = record.get(path.name, "").encode(errors="replace")
    try:
        files = [file for file in path.iterdir() if file.is_file()] if mark else []
        return any(mark in file.read_bytes() for file in files) and not path.is_symlink()
    except OSError:
        return False


def _free(path: Path, ending: str) -> Path:
    names = (path.with_name(f"{path.name}{ending}{n or ''}") for n in itertools.count())
    return next(name for name in names if not os.path.lexists(name))


def _read(folder: Path) -> Record:
    """The record, without what is gone; nothing is the run's own where it cannot be read."""
    try:
        return _there(folder, json.loads((folder / RECORD).read_text()))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def _there(folder: Path, record: Record) -> Record:
    names = {path.name for path in folder.glob("step_*") if path.is_dir()}
    return {name: str(mark) for name, mark in record.items() if name in names}
