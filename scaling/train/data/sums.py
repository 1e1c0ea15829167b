"""Sums of the files that a run is trained on, so that another run does not go on with others.

    data.json   {"sources": [{"data": "a.jsonl", "files": {"": [bytes, CRC-32]}}, ...],
                 "tokenizer": {"tokenizer.json": [bytes, CRC-32], ...}}

Of a file up to 16 MiB every byte is summed, of a larger one 256 blocks spread evenly over it, and
of each of more than 64 files fewer, so that no more than 1 GiB is read: a change between two blocks
is missed. It guards against accidents, not against malice.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError, printable
from scaling.meshes.reading import read_json, write_whole
from scaling.run import Train
from scaling.train.data.documents import files_of
from scaling.train.data.tokenizer import tokenizer_files

DATA = "data.json"
# Bytes of a block, blocks of a file, blocks of all files: 1 GiB takes 1 s from a disk of 1 GB/s.
BLOCK, BLOCKS, ALL_BLOCKS = 1 << 16, 256, 1 << 14
NAMED = 5  # files that are named one by one

Sums = Mapping[str, Any]


def data_sums(train: Train) -> Sums:
    """The document of data.json.

    Raises:
        InputError: a file cannot be read.
    """
    specs = [train.data] if isinstance(train.data, str) else train.data
    try:
        sources = [{"data": spec, "files": _sums(files_of(Path(spec)))} for spec in specs]
        tokenizer = {} if train.tokenizer is None else _sums(tokenizer_files(train.tokenizer))
    except OSError as error:
        raise InputError(f"data {error.filename} cannot be read: {error.strerror}") from error
    return {"sources": sources, "tokenizer": tokenizer}


def save_sums(folder: Path, sums: Sums) -> None:
    """Write data.json."""
    write_whole(folder / DATA, json.dumps(sums, indent=1) + "\n")


def changed_files(folder: Path, sums: Sums) -> list[str]:
    """The files that differ from those of data.json, each with how.

    Without data.json, which earlier versions did not write, none.

    Raises:
        InputError: it is damaged.
    """
    if not (folder / DATA).exists():
        return []
    try:
        before = read_json(folder / DATA)
        pairs = [("tokenizer", "tokenizer", before["tokenizer"], sums["tokenizer"])]
        for old, new in zip(before["sources"], sums["sources"], strict=False):
            pairs.append((old["data"], new["data"], old["files"], new["files"]))
        return [line for pair in pairs for line in _differences(*pair)]
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{folder / DATA} is damaged ({error!r}); delete it to go on without comparing the data"
        ) from None


def named(lines: list[str]) -> str:
    """The first lines, and how many more there are."""
    more = f"; and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
    return printable("; ".join(lines[:NAMED])) + more


def _sums(files: Mapping[str, Path]) -> dict[str, list[int]]:
    return {name: _sum(path, _blocks(files)) for name, path in files.items()}


def _blocks(files: Mapping[str, Any]) -> int:
    """How many blocks of each are summed, where they are larger."""
    return min(BLOCKS, max(2, ALL_BLOCKS // max(1, len(files))))


def _sum(path: Path, blocks: int) -> list[int]:
    """Bytes and CRC-32 of a file, or of so many blocks of it."""
    with path.open("rb") as file:
        size, crc = os.fstat(file.fileno()).st_size, 0
        starts = np.linspace(0, size - BLOCK, blocks, dtype=int) if size > BLOCK * blocks else [0]
        for start in starts:
            file.seek(start)
            crc = zlib.crc32(file.read(BLOCK if len(starts) > 1 else size), crc)
    return [size, crc]


def _differences(
    there: str, here: str, before: Mapping[str, list[int]], now: Mapping[str, list[int]]
) -> Iterator[str]:
    for name in sorted({*before, *now}):
        path = f"{here}/{name}".rstrip("/")
        if name not in now:
            yield f"{there}/{name}".rstrip("/") + " is gone"
        elif name not in before:
            yield f"{path} is new"
        elif before[name] != now[name]:
            same = before[name][0] == now[name][0]
            if same and _blocks(before) != _blocks(now):  # other blocks were summed
                continue
            was = "the same length" if same else f"{before[name][0]:,} bytes before"
            yield f"{path} has other content ({now[name][0]:,} bytes, {was})"
