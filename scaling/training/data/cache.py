"""Arrays on disk that are made once and read in pieces: token ids, and plans of rows.

    $SCALING_CACHE/tokens/KEY/NAME.DTYPE        an array of numbers, in the machine's byte order
    $SCALING_CACHE/tokens/KEY/sums.json         bytes and CRC-32 of each, of a large one of blocks

One process makes a folder, others wait for its lock; a folder gets its name when it is whole and on
the disk. What does not match its sums is made again. A file system without locks lets each process
make its own, of which the first stays.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.durable import make_folders, sync, write_json
from scaling.meshes.errors import InputError
from scaling.meshes.reading import cache_path
from scaling.training.data.sums import sum_of
from scaling.training.data.token_file import TokenFile

READING = "2"  # another one where the same data give other arrays than before
SUMS = "sums.json"
CHECKED = 16  # blocks of a large file that are summed whenever it is opened: 1 MiB

Arrays = Mapping[str, np.ndarray]  # by name


def key_of(*settings: Any) -> str:
    """Hash of all that decides arrays, as JSON."""
    return hashlib.sha256(json.dumps([READING, *settings]).encode()).hexdigest()


def load_or_make(key: str, make: Callable[[], Iterable[Arrays]]) -> dict[str, TokenFile]:
    """The arrays stored under `key`, by name; what there is not is made, piece by piece.

    Raises:
        InputError: they cannot be stored.
    """
    folder = cache_path("tokens") / key
    if (stored := _load(folder)) is not None:
        return stored
    try:
        make_folders(folder.parent)
        with _locked(folder.with_suffix(".lock")):
            if (stored := _load(folder)) is None:
                _store(folder, make())
                stored = _load(folder)
    except OSError as error:
        raise InputError(
            f"token ids cannot be stored in {folder.parent}: {error.strerror or error}; set "
            "SCALING_CACHE to a folder with room for them"
        ) from error
    if stored is None:
        raise InputError(f"{folder}, just written, does not match its sums: the disk is damaged")
    return stored


def _load(folder: Path) -> dict[str, TokenFile] | None:
    if not folder.exists():
        return None
    try:
        if (sums := json.loads((folder / SUMS).read_bytes())) == _sums(folder):
            by_name = ((folder / name, name.split(".")) for name in sums)
            return {name: TokenFile(path, np.dtype(kind)) for path, (name, kind) in by_name}
        problem = "they do not match their sums"
    except (ValueError, OSError) as error:
        problem = str(error)
    warnings.warn(f"{folder} is damaged and made again ({problem})", stacklevel=3)
    return None


def _store(folder: Path, parts: Iterable[Arrays]) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # damaged
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with ExitStack() as opened:
            files: dict[str, Any] = {}
            for name, array in (item for part in parts for item in part.items()):
                path = draft / f"{name}.{array.dtype}"
                if name not in files:
                    files[name] = opened.enter_context(path.open("wb"))
                files[name].write(array.data)
        for path in draft.iterdir():
            sync(path)
        write_json(draft / SUMS, _sums(draft))
        os.chmod(draft, stat.S_IMODE(folder.parent.stat().st_mode))  # others read it too
        try:
            os.rename(draft, folder)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another's, without locks
                raise
        sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sums(folder: Path) -> dict[str, list[int]]:
    paths = (path for path in sorted(folder.iterdir()) if path.name != SUMS)
    return {path.name: sum_of(path, CHECKED) for path in paths}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among the processes that want the same; a process that ends lets go."""
    with path.open("w") as file:
        with suppress(OSError):  # a file system that has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
            for left in path.parent.glob(f".{path.stem}.*"):  # of a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        yield
