"""The run folder as a whole: its checks before a run, its lock, and what is said of its disk.

Seen with orbax-checkpoint 0.12.8, tensorstore 0.1.86 and etils 1.15.0: Orbax looks for the folders
of its processes with a pattern that begins with the whole path (`[a]` finds nothing, `a*` also
those of another run in `ab`), TensorStore takes `\\` for `/`, and gs:/ anywhere is made gs://.
"""

import errno
import glob
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jax

from scaling.meshes.errors import InputError
from scaling.training.launch.consensus import refused_by_all
from scaling.training.launch.supervisor import BEGAN, RESTARTED
from scaling.training.monitor.progress import Predicted
from scaling.training.run_folder.lock import LOCK, locked
from scaling.training.run_folder.steps import how_to_go_on, latest_step

TOKENIZER = "tokenizer"  # folder of a copy
STORES = ("/gs/", "/s3/", "/az/", "/hf/")  # etils.epath opens gs://... for them
# Below the folder of checkpoints Orbax's longest names, with room: of folders, then of a file.
BELOW = Path("step_00000000.orbax-checkpoint-tmp" + "-" * 20, "ocdbt.process_00000", "d", "0" * 60)


@dataclass(frozen=True)
class Options:
    """Settings of one process of a run that run.json does not hold."""

    folder: Path
    resume: bool = False
    profile: tuple[int, int] | None = None  # first and last step recorded
    sinks: tuple[str, ...] = ()  # "tensorboard", "wandb"
    predicted: Predicted | None = None  # of one step; shown beside the measured one
    began: float = field(  # unix time, of the first of its attempts
        default_factory=lambda: float(os.environ.get(BEGAN, time.time()))
    )
    initial: Path | None = None  # safetensors files that the first step begins with


def check_path(folder: Path) -> None:
    """Refuse the folder of a run, or of its checkpoints, whose path is not taken literally.

    Raises:
        InputError: why, and how to go on.
    """
    path = folder.absolute()
    if reason := _unusable(path):
        raise InputError(
            f"{path} cannot hold checkpoints: {reason}. Choose another --run-dir, or reach it by a "
            "link (ln -s) with a plain name"
        )


def _unusable(path: Path) -> str:
    """Why checkpoints cannot be saved below a path and found again; "" if they can."""
    name = str(path)
    if glob.escape(name) != name or "\\" in name:
        return "the checkpoint library takes [, *, ? and \\ in a path for a pattern or a separator"
    if "gs:/" in f"{name}/" or f"{name}/".startswith(STORES):
        return "the checkpoint library takes gs:/, /gs, /s3, /az and /hf for stores in a cloud"
    try:
        name.encode()
        os.lstat(path / BELOW)
    except UnicodeEncodeError:
        return "the path is not UTF-8"
    except OSError as error:  # others: it is not there yet, or is refused elsewhere
        return "the path is too long" if error.errno == errno.ENAMETOOLONG else ""
    except ValueError as error:
        return str(error)
    return ""


def check_folder(options: Options) -> None:
    """Refuse to write over an earlier run, or to resume where nothing was saved.

    Raises:
        InputError: which of the two, and what to do; or the folder cannot be written to, cannot
            hold checkpoints, or holds a link that the run would write through.
    """
    folder = options.folder
    check_path(folder)
    # Links where the run would write through them; other files are replaced as a whole.
    others = list(folder.glob("process_*"))
    logs = [place / "metrics.jsonl" for place in (folder, *others)]
    locks = folder / LOCK, folder / "checkpoints" / LOCK
    for path in (*locks, folder / TOKENIZER, *others, *logs):
        if path.is_symlink():
            raise InputError(
                f"{path} is a link to {path.readlink()}, which the run would write to; remove the "
                "link, or choose another --run-dir"
            )
    saved = latest_step(folder / "checkpoints")
    if options.resume and saved is None:
        raise InputError(
            f"--resume: no finished checkpoint in {folder / 'checkpoints'}; check --run-dir, or "
            "start without --resume in a new folder"
        )
    metrics = folder / "metrics.jsonl"
    if not options.resume and (saved is not None or (metrics.exists() and metrics.stat().st_size)):
        which = "that saved no checkpoint; choose another --run-dir, or move it away"
        if saved is not None:
            which = f"(saved up to step {saved}); continue it with --resume, or choose another"
        raise InputError(f"--run-dir {folder} already holds a run {which}")
    first, _ = options.profile or (math.inf, 0)
    if saved is not None and first <= saved and RESTARTED not in os.environ:
        raise InputError(
            f"--record-profile begins at step {first}, but the run resumes after step {saved}; "
            "choose later steps"
        )
    for place in (folder, folder / "checkpoints"):  # which may be a link to another disk
        _check_writable(place)


def finished_step(options: Options, steps: int) -> int | None:
    """The newest saved step of a resumed run, if it is the last one; None: there is more to do."""
    saved = latest_step(options.folder / "checkpoints") if options.resume else None
    return saved if saved is not None and saved >= steps else None


def own_folder(folder: Path) -> Path:
    """Folder of this process's metrics: the run folder for the first one."""
    index = jax.process_index()
    return folder / f"process_{index}" if index else folder


@contextmanager
def lock_run_folder(options: Options) -> Iterator[Callable[[], None]]:
    """Make the run folder and lock it for this job.

    Its checkpoints, to which several run folders may link, have a lock of their own.

    Yields:
        What to call before every write: it raises InputError once the folder, or the lock in it, is
        not at its place any more. Process 0, which holds the lock, finds out for all.

    Raises:
        InputError: another job writes there and does not end soon, or the folder does not fit the
            command (`check_folder`), now that nobody else writes to it. On all processes.
    """
    folder = options.folder.absolute()
    lost: Callable[[], str] = lambda: ""  # the others write nothing that the first does not check

    def check() -> None:
        if reason := lost():
            raise InputError(
                f"{folder}, or {LOCK} in it, was moved or deleted while the run wrote there "
                f"({reason}). The run ends and writes nothing more. Put the folder back and go on "
                "with --resume if it holds a checkpoint; else start again"
            )

    with ExitStack() as stack:
        with refused_by_all(
            f"process 0 cannot use {options.folder}, and prints why; choose another --run-dir"
        ):
            if jax.process_index() == 0:
                check_path(folder)
                lost = stack.enter_context(locked(folder))
                saves = folder / "checkpoints"
                if os.path.realpath(saves) != os.path.realpath(folder):  # else it is locked now
                    stack.enter_context(locked(saves))
                check_folder(options)
        yield check


@contextmanager
def explain_unwritable(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses, of any file of the run, into one message.

    Raises:
        InputError: with the file and the last checkpoint; of a full disk the bytes that are free.
    """
    try:
        yield
    except ConnectionError:  # no file: who reads our output has gone
        raise
    except OSError as error:
        what, first = f"{error.filename or folder}: {error.strerror or error}", "Make it writable"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(folder).free
            what, first = f"{what}; {free:,} bytes are free on its disk", "Make room"
        raise InputError(f"{what}. {first}; {how_to_go_on(folder)}") from error


def _check_writable(folder: Path) -> None:
    place = folder.absolute()
    existing = next(path for path in (place, *place.parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        link = f", a link to {existing.readlink()}" if existing.is_symlink() else ""
        raise InputError(
            f"cannot write to {folder}{link}: {error.strerror}; make it a folder that can be "
            "written to, or choose another --run-dir"
        ) from None
