"""Documents tokenized once, into shards that are read in pieces: memory holds neither text nor ids.

    ids       token ids of documents one after the other, each followed by the end of text
    lengths   tokens of each document
    counted   which tokens count, of chats alone: those of the assistant
    bytes     of text;  skipped: binary files that are left out

A shard is of some files, and stored under what decides it: their names, sizes, times of
modification and sums, and the tokenizer (`scaling.training.data.cache`).
"""

import random
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.cache import Arrays, key_of, load_or_make
from scaling.training.data.chat import encode_chats
from scaling.training.data.documents import STDLIB, Document, are_records, documents, files_of
from scaling.training.data.packing import TokenizedDocuments
from scaling.training.data.sums import sums_of
from scaling.training.data.token_file import joined, total
from scaling.training.data.tokenizer import BYTES, Tokenizer

# Documents that are tokenized together, and bytes of their text.
AT_ONCE, BYTES_AT_ONCE = 1000, 1 << 22
# Bytes of the files of a shard, which is what a process that ends early has done for nothing. No
# more than so many: each is an open file, or two, of the 1,024 that Linux gives to a process.
SHARD, SHARDS = 1 << 28, 64


def tokenized(path: Path, tokenizer: Tokenizer) -> tuple[TokenizedDocuments, str]:
    """The documents of a source, tokenized where nobody has before, and a description of it.

    Processes take the shards in orders of their own, so that those of several hosts share the work.

    Raises:
        InputError: no document, texts beside chats, a file that cannot be read, a full disk.
    """
    files = files_of(path)
    records, sums, sizes = are_records(files), sums_of(files), {}
    for name, file in files.items():
        sizes[name] = file.stat().st_size
        sums[name].append(file.stat().st_mtime_ns)
    most, place, shards = max(SHARD, sum(sizes.values()) // SHARDS), 0, dict[int, list[str]]()
    for name in files:
        shards.setdefault(place // most, []).append(name)
        place += sizes[name]

    made: dict[int, tuple[str, dict[str, Any]]] = {}
    for number in random.sample(list(shards), len(shards)):
        names = shards[number]
        key = key_of(tokenizer.digest, records, [(name, sums[name]) for name in names])
        contents = _contents([files[name] for name in names], records, "" in files)
        made[number] = key, load_or_make(key, partial(_shard, tokenizer, contents))
    ordered = [made[number] for number in shards]
    streams = lambda name: [arrays[name] for _, arrays in ordered if name in arrays]
    ids, counted = streams("ids"), streams("counted")
    skipped = sum(map(total, streams("skipped")))

    where = "the Python standard library" if path == STDLIB else str(path)
    where += f" ({skipped:,} binary files skipped)" if skipped else ""
    text_bytes = sum(map(total, streams("bytes")))
    if not ids or not (text_bytes or counted):
        kind = "record" if records else "text"
        raise InputError(
            f"data '{path}': no {kind} in {where}. Name a file or folder that has any."
        )
    if counted and len(joined(counted)) < len(joined(ids)):
        raise InputError(f"data '{path}' has files of 'text' and of 'messages': make two sources")
    found = TokenizedDocuments(
        joined(ids),
        joined(streams("lengths")),
        joined(counted) if counted else None,
        None if counted else text_bytes,
        key_of([key for key, _ in ordered]),
    )
    return found, f"{where} by {tokenizer.description}"


def _contents(
    files: list[Path], records: bool, alone: bool
) -> Iterator[tuple[Document | None, bool]]:
    try:
        for file in files:
            yield from documents(file, records, alone)
    except OSError as error:
        raise InputError(f"data '{file}' cannot be read: {error}") from error


def _shard(
    tokenizer: Tokenizer, contents: Iterable[tuple[Document | None, bool]]
) -> Iterator[Arrays]:
    """The arrays of a shard, a group of documents at a time."""
    dtype, begun = np.min_scalar_type(tokenizer.size - 1), 0  # tokens of a text that goes on
    end = [] if tokenizer.end is None else [tokenizer.end]
    for group in _groups(contents):
        texts = [(text, last) for text, last in group if isinstance(text, bytes)]
        chats = [chat for chat, _ in group if isinstance(chat, list)]
        ids: list[np.ndarray] = []
        lengths: list[int] = []
        if tokenizer is BYTES:
            encoded = [np.frombuffer(text, np.uint8) for text, _ in texts]
        else:
            encoded = [of[0] for of in tokenizer.encode([text.decode() for text, _ in texts])]
        for (_, last), of_text in zip(texts, encoded, strict=True):
            ids += [of_text, np.array(end if last else [], dtype)]
            begun += len(of_text)
            if last:
                lengths.append(begun + len(end))
                begun = 0
        part = {"skipped": np.array([len(group) - len(texts) - len(chats)])}
        part["bytes"] = np.array([sum(len(text) for text, _ in texts)])
        if chats:
            of_chats, counted = zip(*encode_chats(tokenizer, chats), strict=True)
            ids, lengths = [*ids, *of_chats], [*lengths, *map(len, of_chats)]
            part["counted"] = np.concatenate(counted)
        if ids:
            part["ids"] = np.concatenate(ids).astype(dtype)
            part["lengths"] = np.array(lengths, np.int64)
        yield part


def _groups(contents: Iterable[tuple[Document | None, bool]]) -> Iterator[list]:
    """Documents that are held at once, each of them with whether it ends."""
    group, size = [], 0
    for document, last in contents:
        group.append((document, last))
        texts = (
            [document] if isinstance(document, bytes) else [m["content"] for m in document or ()]
        )
        size += sum(map(len, texts))
        if len(group) == AT_ONCE or size >= BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group
