"""Sums of the files that a run is trained on, so that another run does not go on with others.

    data.json   {"sources": [{"data": "a.jsonl", "files": {"": [bytes, CRC-32]}}, ...],
                 "tokenizer": {"tokenizer.json": [bytes, CRC-32, CRC-32 of the content], ...}}

The content of JSON has its keys sorted, so that a tokenizer that was written anew is the same one.

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
from scaling.meshes.reading import read_json
from scaling.run import Train
from scaling.training.data.documents import files_of
from scaling.training.data.tokenizer import tokenizer_files

DATA = "data.json"
# Bytes of a block, blocks of a file, blocks of all files: 1 GiB takes 1 s from a disk of 1 GB/s.
BLOCK, BLOCKS, ALL_BLOCKS = 1 << 16, 256, 1 << 14
NAMED = 5  # files that are named one by one

Sums = Mapping[str, Any]
Files = Mapping[str, list[int]]  # name -> sums


def data_sums(train: Train) -> Sums:
    """The document of data.json.

    Raises:
        InputError: a file cannot be read.
    """
    specs = [train.data] if isinstance(train.data, str) else train.data
    try:
        sources = [{"data": spec, "files": sums_of(files_of(Path(spec)))} for spec in specs]
        files = {} if train.tokenizer is None else tokenizer_files(train.tokenizer)
        tokenizer = {name: sums + _content(files[name]) for name, sums in sums_of(files).items()}
    except OSError as error:
        raise InputError(f"data {error.filename} cannot be read: {error.strerror}") from error
    return {"sources": sources, "tokenizer": tokenizer}


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
        tokenizer = _differences("tokenizer", "tokenizer", before["tokenizer"], sums["tokenizer"])
        by_source = lambda sums: {source["data"]: source["files"] for source in sums["sources"]}
        return [*tokenizer, *_source_differences(by_source(before), by_source(sums))]
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{folder / DATA} is damaged ({error!r}); delete it to go on without comparing the data"
        ) from None


def named(lines: list[str]) -> str:
    """The first lines, and how many more there are."""
    more = f"; and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
    return printable("; ".join(lines[:NAMED])) + more


def sums_of(files: Mapping[str, Path]) -> dict[str, list[int]]:
    """Bytes and CRC-32 of files, of larger ones of blocks."""
    return {name: sum_of(path, _blocks(files)) for name, path in files.items()}


def sum_of(path: Path, blocks: int) -> list[int]:
    """Bytes and CRC-32 of a file, or of so many blocks of it."""
    with path.open("rb") as file:
        size, crc = os.fstat(file.fileno()).st_size, 0
        starts = np.linspace(0, size - BLOCK, blocks, dtype=int)
        for start in starts if size > BLOCK * blocks else range(0, size, BLOCK):
            file.seek(start)
            crc = zlib.crc32(file.read(BLOCK), crc)
    return [size, crc]


def _blocks(files: Mapping[str, Any]) -> int:
    """How many blocks of each are summed, where they are larger."""
    return min(BLOCKS, max(2, ALL_BLOCKS // max(1, len(files))))


def _content(path: Path) -> list[int]:
    """CRC-32 of what a JSON file says, in whatever order and layout; nothing for another file."""
    try:
        text = json.dumps(read_json(path), sort_keys=True)
    except InputError:
        return []
    return [zlib.crc32(text.encode())]


def _source_differences(there: Mapping[str, Files], here: Mapping[str, Files]) -> Iterator[str]:
    """Sources that came, went or changed places, and how the files of the others differ.

    As many others in their places are the same ones under other names.
    """
    pairs = [(name, name) for name in here if name in there]
    moved = [pair for pair in zip(there, here, strict=False) if pair[0] != pair[1]]
    if len(there) == len(here) and there.keys() != here.keys():
        pairs = list(zip(there, here, strict=True))
    else:
        yield from (f"train.data no longer names {name}" for name in there if name not in here)
        yield from (f"train.data also names {name}" for name in here if name not in there)
    if there.keys() == here.keys() and moved:
        old, new = moved[0]
        yield (
            "train.data names its sources in another order, on which that of their sequences "
            f"depends: {new} stands where {old} stood"
        )
    for old, new in pairs:
        yield from _differences(old, new, there[old], here[new])


def _differences(there: str, here: str, before: Files, now: Files) -> Iterator[str]:
    for name in sorted({*before, *now}):
        path = f"{here}/{name}".rstrip("/")
        if name not in now:
            yield f"{there}/{name}".rstrip("/") + " is gone"
        elif name not in before:
            yield f"{path} is new"
        elif not (  # the bytes are the same, or what they say
            before[name][:2] == now[name][:2] or before[name][2:] == now[name][2:] != []
        ):
            same = before[name][0] == now[name][0]
            if same and _blocks(before) != _blocks(now):  # other blocks were summed
                continue
            was = "the same length" if same else f"{before[name][0]:,} bytes before"
            yield f"{path} has other content ({now[name][0]:,} bytes, {was})"
