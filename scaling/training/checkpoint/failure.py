"""The messages about a checkpoint that could not be written."""

import errno
import os
import shutil
import textwrap
from pathlib import Path

from scaling.meshes.errors import InputError

REASON_CHARACTERS = 300  # of an error message that lists every detail of a storage driver
FULL = "the disk is full"
DENIED = (errno.EPERM, errno.EACCES, errno.EROFS)


class CheckpointError(InputError):
    """A checkpoint could not be written; the ones before it are intact."""


def failure(folder: Path, step: int, error: Exception | str, last: int | None) -> CheckpointError:
    """The error with its numbers, and how to go on.

    Args:
        folder: of all checkpoints.
        error: of the file system or of Orbax; or in words, of a disk with too little room.
        last: step of the last good checkpoint.
    """
    reason = error if isinstance(error, str) else textwrap.shorten(str(error), REASON_CHARACTERS)
    if isinstance(error, Exception):
        code, full = getattr(error, "errno", None), os.strerror(errno.ENOSPC)
        reason = FULL if code == errno.ENOSPC or full in str(error) else reason
    denied = getattr(error, "errno", None) in DENIED
    remedy = "Make the folder writable" if denied else "Look after that disk"
    if reason in (FULL, error):
        remedy = "Make room"
    saved = "none" if last is None else f"step {last}"
    then = "start again in another --run-dir" if last is None else "go on with --resume"
    if not os.path.isdir(folder.parent):
        saved, remedy = "not known", f"{folder.parent} is gone: put it back if it was moved"
        then = "go on with --resume if it holds a checkpoint; else start again"
    return CheckpointError(
        f"checkpoint of step {step} not saved in {folder}: {reason}; "
        f"{free_bytes(folder):,} bytes are free on that disk. "
        f"Last good checkpoint: {saved}. {remedy}, then {then}."
    )


def no_answer(folder: Path, step: int, seconds: float) -> CheckpointError:
    """The error after so many seconds without an end; the disk, which may be gone, is not asked."""
    return CheckpointError(
        f"checkpoint of step {step} not saved in {folder}: it took more than {seconds / 60:.0f} "
        "minutes. Look after that disk or file server, then go on from the last checkpoint with "
        "--resume; without one, start again in another --run-dir."
    )


def free_bytes(folder: Path) -> int:
    """Bytes that are free on the disk of a folder, which need not be there yet."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free
