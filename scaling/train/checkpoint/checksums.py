"""Are the files of a folder those that were written? Bytes and CRC-32 of each, in one JSON file.

    folder/a  folder/b/c  ->  folder/checksums.json: {"a": [bytes, crc32], "b/c": [bytes, crc32]}

The JSON file appears in one atomic move after all others, so its presence says "finished".
A CRC-32 misses one damaged file in 2**32; it guards against accidents, not against malice.
"""

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILE = "checksums.json"
READ_BYTES = 1 << 24  # 16 MiB at a time: large reads, little memory
READERS = 8  # files read at once: zlib lets other threads run while it computes


def write(folder: Path) -> None:
    """Record every file of `folder`, and by that mark the folder as finished."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != FILE)
    with ThreadPoolExecutor(READERS) as readers:
        crcs = readers.map(_crc32, files)
    sums = {
        str(file.relative_to(folder)): [file.stat().st_size, crc32]
        for file, crc32 in zip(files, crcs, strict=True)
    }
    unfinished = folder / f"{FILE}.unfinished"
    with unfinished.open("w") as out:
        json.dump(sums, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(folder / FILE)


def damage(folder: Path, share: int = 0, shares: int = 1) -> str | None:
    """What is wrong with the recorded files, in words; None if they are as written.

    Args:
        folder: where `write` was called.
        share, shares: look at every `shares`-th file only, from `share` on: a job's processes
            divide the reading among themselves.
    """
    try:
        recorded = json.loads((folder / FILE).read_text())
        files = [(folder / name, size, crc32) for name, (size, crc32) in recorded.items()]
        with ThreadPoolExecutor(READERS) as readers:
            found = readers.map(lambda file: _difference(*file), files[share::shares])
        return next((words for words in found if words), None)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        return f"{FILE} or a file that it lists cannot be read ({error})"


def _difference(file: Path, size: int, crc32: int) -> str | None:
    """In what a file differs from its record."""
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
