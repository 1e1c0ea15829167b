"""Bytes and CRC-32 of every file of a checkpoint, to find damage before it is loaded.

    step_00000200/checksums_0.json    {"state/d/17d8c2e8": [bytes, crc32], ...}
                  checksums_1.json    of the files that process 1 wrote

Each process sums its own files, which are still in its host's page cache: those below a folder that
Orbax named after the process (`ocdbt.process_1`). All other files, small ones, are process 0's.
A CRC-32 misses one damaged file in 2**32; it guards against accidents, not against malice.
"""

import json
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scaling.meshes.reading import write_whole

RECORDS = "checksums_*.json"
OWNER = re.compile(r"process_(\d+)(?:/|$)")  # in the names of Orbax's files and folders
READ_BYTES = 1 << 24  # 16 MiB at a time: large reads, little memory
READERS = 8  # files read at once: zlib releases Python's lock while it computes


def write_checksums(folder: Path, process: int = 0) -> None:
    """Record the files of `folder` that `process` wrote."""
    files = [file for file in _files(folder) if _owner(file, folder) == process]
    with ThreadPoolExecutor(READERS) as readers:
        crcs = readers.map(_crc32, files)
    sums = {
        str(file.relative_to(folder)): [file.stat().st_size, crc32]
        for file, crc32 in zip(files, crcs, strict=True)
    }
    write_whole(folder / RECORDS.replace("*", str(process)), json.dumps(sums, indent=1))


def find_damage(folder: Path, process: int = 0, processes: int = 1) -> str | None:
    """A description of the first difference from the records; None if there is none.

    A file without a record is not looked at: the job ended before its process had summed it.

    Each of the `processes` of a job reads its share of the files.
    """
    try:
        recorded: dict[str, list[int]] = {}
        for record in sorted(folder.glob(RECORDS)):
            recorded.update(json.loads(record.read_text()))
        files = [(folder / name, size, crc32) for name, (size, crc32) in recorded.items()]
        with ThreadPoolExecutor(READERS) as readers:
            differences = readers.map(lambda file: _difference(*file), files[process::processes])
        return next(filter(None, differences), None)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return f"{RECORDS} or a file that it lists cannot be read ({error})"


def _files(folder: Path) -> list[Path]:
    records = {*folder.glob(RECORDS), *folder.glob(f".{RECORDS}.draft")}
    return sorted(file for file in folder.rglob("*") if file.is_file() and file not in records)


def _owner(file: Path, folder: Path) -> int:
    """Number of the process that wrote a file."""
    match = OWNER.search(file.relative_to(folder).as_posix())
    return int(match[1]) if match else 0


def _difference(file: Path, size: int, crc32: int) -> str | None:
    """The difference of a file from its record, or None."""
    if not file.is_file():
        return f"{file.name} is missing"
    if (actual := file.stat().st_size) != size:
        return f"{file.name} has {actual:,} bytes instead of {size:,}"
    return None if _crc32(file) == crc32 else f"{file.name} differs from what was written (CRC-32)"


def _crc32(file: Path) -> int:
    """CRC-32 of a file's contents."""
    crc = 0
    with file.open("rb") as source:
        while chunk := source.read(READ_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
