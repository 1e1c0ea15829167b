"""Bytes and CRC-32 of every file of a checkpoint, to find damage before it is loaded.

    step_00000200/checksums_0.json    {"state/d/17d8c2e8": [bytes, crc32], ...}
                  checksums_1.json    of the files that process 1 wrote

Each process sums its own files, which are still in its host's page cache: those below a folder that
Orbax named after the process (`ocdbt.process_1`). All other files, small ones, are process 0's.
The sums are written last: they say that the disk has the files, and gave them back as they were.
A CRC-32 misses one damaged file in 2**32; it guards against accidents, not against malice.
"""

import errno
import json
import os
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scaling.meshes.durable import sync, write_whole

RECORDS = "checksums_*.json"
RECORD_NAME = re.compile(r"checksums_\d+\.json|\.checksums_\d+\.json\.draft")
OWNER = re.compile(r"process_(\d+)(?:/|$)")  # in the names of Orbax's files and folders
READ_BYTES = 1 << 24  # 16 MiB at a time: large reads, little memory
READERS = 8  # files read at once: zlib releases Python's lock while it computes

Sums = Mapping[str, list[int]]  # path of a file in the checkpoint -> bytes, CRC-32


def write_checksums(folder: Path, process: int = 0) -> None:
    """Record the files of `folder` that `process` wrote, when the disk has them.

    They are summed, synced with all folders, dropped from the page cache, and read back. The kernel
    tells an error of writing to one reader of the file only, who may be another program.

    Raises:
        OSError: the disk does not take them, or gives back something else.
    """
    files = [file for file in _files(folder) if _owner(file, folder) == process]
    folders = [path for path in folder.rglob("*") if path.is_dir()]
    with ThreadPoolExecutor(READERS) as readers:
        crcs = readers.map(_crc32, files)
        sums = {
            str(file.relative_to(folder)): [file.stat().st_size, crc32]
            for file, crc32 in zip(files, crcs, strict=True)
        }
        list(readers.map(sync, [*files, *folders, folder, folder.parent]))
        list(readers.map(_drop_from_cache, files))
    if damage := _damage(folder, sums):
        raise OSError(errno.EIO, f"what was read back differs: {damage}", str(folder))
    write_whole(folder / _record(process), json.dumps(sums, indent=1))  # every byte counts


def unsummed(folder: Path, processes: int = 1) -> list[int]:
    """Processes that have not recorded their files: of the first so many, and of those with files.

    A job ended, or is, between Orbax's last rename and their sums.
    """
    owners = {*range(processes), *(_owner(file, folder) for file in _files(folder))}
    return sorted(owner for owner in owners if not (folder / _record(owner)).is_file())


def find_damage(folder: Path, process: int = 0, processes: int = 1) -> str | None:
    """A description of the first difference from the records; None if there is none.

    A file without a record is not looked at: see `unsummed`.

    Each of the `processes` of a job reads its share of the files.
    """
    try:
        recorded: dict[str, list[int]] = {}
        for record in sorted(folder.glob(RECORDS)):
            recorded.update(json.loads(record.read_text()))
        return _damage(folder, dict(list(recorded.items())[process::processes]))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return f"{RECORDS} or a file that it lists cannot be read ({error})"


def _damage(folder: Path, sums: Sums) -> str | None:

    def difference(name: str) -> str | None:
        file, (size, crc32) = folder / name, sums[name]
        if not file.is_file():
            return f"{file.name} is missing"
        if (actual := file.stat().st_size) != size:
            return f"{file.name} has {actual:,} bytes instead of {size:,}"
        intact = _crc32(file) == crc32
        return None if intact else f"{file.name} differs from what was written (CRC-32)"

    with ThreadPoolExecutor(READERS) as readers:
        differences = readers.map(difference, sums)
    return next(filter(None, differences), None)


def _record(process: int) -> str:
    return RECORDS.replace("*", str(process))


def _files(folder: Path) -> list[Path]:
    """All files but the records, which another process may be writing."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if not RECORD_NAME.fullmatch(file.name))


def _owner(file: Path, folder: Path) -> int:
    match = OWNER.search(file.relative_to(folder).as_posix())
    return int(match[1]) if match else 0


def _crc32(file: Path) -> int:
    crc = 0
    with file.open("rb") as source:
        while chunk := source.read(READ_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def _drop_from_cache(file: Path) -> None:
    """Let the next reader of a synced file get it from the disk (posix_fadvise(2); not macOS)."""
    if not hasattr(os, "posix_fadvise"):
        return
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
