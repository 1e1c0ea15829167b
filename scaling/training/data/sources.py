"""The data that a run names, opened and split: `train.data`, `train.tokenizer`, `train.documents`.

    "stdlib", a folder, a text file      documents of text
    FILE.jsonl, FILE.parquet             documents of text, or chats
    FILE.bin                             token ids, read in pieces: uint16 if vocab_size <= 65536,
                                         else uint32 (FILE.uint16.bin, FILE.uint32.bin say it)
    {"a.jsonl": 3, "stdlib": 1}          a mixture: shares of the sequences

joined     one stream of all documents, each followed by the tokenizer's end of text
packed     documents side by side in a sequence; of chats only what the assistant says counts
"""

import difflib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError, nearest
from scaling.run import Train
from scaling.training.data.cache import key_of, load_or_make
from scaling.training.data.chat import encode_chats
from scaling.training.data.documents import NUL, RECORDS, STDLIB, read_records, read_texts
from scaling.training.data.packing import PackedRows, Stream, TokenizedDocuments, one_document
from scaling.training.data.tokenizer import BYTES, Tokenizer, open_tokenizer
from scaling.training.data.tokens import (
    HELD_OUT_FRACTION,
    Mixture,
    Source,
    TokenSplit,
    split_stream,
    token_file,
)

AT_ONCE = 1000  # documents that are tokenized together


def open_data(train: Train, vocab_size: int, seq_len: int) -> Source:
    """What a run trains on, with the held-out part split off.

    Raises:
        InputError: nothing there, nothing usable in it, too few tokens, an id out of range.
    """
    packed = train.documents == "packed"
    if isinstance(train.data, str):
        return open_source(train.data, vocab_size, seq_len, train.tokenizer, packed)
    wrong = {name: weight for name, weight in train.data.items() if weight <= 0}
    if wrong or not train.data:
        raise InputError(f"train.data {train.data}: each source needs a share above 0")
    opened = (open_source(d, vocab_size, seq_len, train.tokenizer, packed) for d in train.data)
    return Mixture(tuple(train.data), tuple(opened), tuple(train.data.values()))


def open_source(
    spec: str, vocab_size: int, seq_len: int, tokenizer: str | None = None, packed: bool = False
) -> TokenSplit:
    """The source that `spec` names, with the held-out part split off.

    Args:
        spec: see above.
        vocab_size: ids must lie below it; at least 256 for text that is read byte by byte.
        seq_len: tokens per sequence; each part of a stream must hold a window of seq_len + 1.
        tokenizer: see `scaling.training.data.tokenizer`; of text only.
        packed: documents side by side instead of one stream.

    Raises:
        InputError: see `open_data`.
    """
    path = _existing(spec)
    with _readable(spec):
        if path.suffix == ".bin" and path.is_file():
            if packed:
                raise InputError(
                    f"data {spec!r} is a stream of token ids, which does not say where documents "
                    "begin: use train.documents 'joined', or .jsonl"
                )
            stream: Stream
            stream, description = token_file(path, vocab_size)
        else:
            encoder = open_tokenizer(tokenizer, vocab_size)
            if packed:
                return _packed(path, encoder, seq_len)
            stream, description = _joined(path, encoder)
    return split_stream(stream, vocab_size, seq_len, spec, description)


def open_whole(
    spec: str, vocab_size: int, tokenizer: str | None = None
) -> tuple[TokenizedDocuments, int | None]:
    """All documents of a source, none of them held out, and the bytes of their text.

    A `.bin` is one document, whose text is not known (None); neither is that of chats.

    Raises:
        InputError: as `open_source`.
    """
    path = _existing(spec)
    with _readable(spec):
        if path.suffix == ".bin" and path.is_file():
            return one_document(token_file(path, vocab_size)[0]), None
        encoder = open_tokenizer(tokenizer, vocab_size)
        documents, _ = _texts_or_chats(path)
        texts = isinstance(documents[0], bytes)
        return _tokenized(documents, encoder), sum(map(len, documents)) if texts else None


def _joined(path: Path, tokenizer: Tokenizer) -> tuple[Stream, str]:
    texts, where = _texts_or_chats(path)
    if not isinstance(texts[0], bytes):
        raise InputError(
            f"data '{path}' holds {len(texts):,} chats, of which only what the assistant says "
            "is to count: set train.documents to 'packed'"
        )
    if tokenizer is BYTES:
        joined = np.frombuffer(NUL.join(texts), np.uint8)
        return joined, f"{len(texts):,} documents, {len(joined):,} bytes of {where}"
    ids = _tokenized(texts, tokenizer).ids
    counts = f"{len(texts):,} documents, {len(ids):,} tokens"
    return ids, f"{counts} of {where} by {tokenizer.description}"


def _packed(path: Path, tokenizer: Tokenizer, seq_len: int) -> TokenSplit:
    texts_or_chats, where = _texts_or_chats(path)
    documents = _tokenized(texts_or_chats, tokenizer)
    count = len(documents)
    if count < 2:
        raise InputError(
            f"data '{path}' has {count} document; packed ones need 2 at least, one to train "
            "on and one held out: use train.documents 'joined'"
        )
    first = count - max(1, int(HELD_OUT_FRACTION * count))
    rows = PackedRows(documents.part(0, first), seq_len, f"data '{path}'")
    held_out = PackedRows(documents.part(first, count), seq_len, f"held-out part of '{path}'")
    filled = sum(last - begin for row in rows.rows for begin, last in row) / seq_len / len(rows)
    split = f", {rows.split:,} longer than a sequence and split" if rows.split else ""
    description = (
        f"{count:,} documents of {where} by {tokenizer.description}: {len(documents.ids):,} "
        f"tokens, {documents.counted.mean():.0%} of which count{split}; {len(rows):,} rows to "
        f"train on, {filled:.0%} full"
    )
    return TokenSplit(rows, held_out, description)


def _tokenized(documents: list[Any], tokenizer: Tokenizer) -> TokenizedDocuments:
    """The ids of texts as UTF-8, or of chats."""

    def make() -> TokenizedDocuments:
        starts = range(0, len(documents), AT_ONCE)
        groups = (documents[start : start + AT_ONCE] for start in starts)
        encoded = [pair for group in groups for pair in _encoded(tokenizer, group)]
        ids, counted = zip(*encoded, strict=True)
        ends = np.cumsum([len(document) for document in ids])
        return TokenizedDocuments(np.concatenate(ids), np.concatenate(counted), ends)

    if tokenizer is BYTES:
        return make()
    texts = (d if isinstance(d, bytes) else json.dumps(d).encode() for d in documents)
    return load_or_make(key_of(texts, tokenizer.digest), make)


def _texts_or_chats(path: Path) -> tuple[list[Any], str]:
    """Texts as UTF-8, or chats, and where they are."""
    if path.suffix not in RECORDS or not path.is_file():
        return read_texts(path)
    records = read_records(path)
    return [r.encode() if isinstance(r, str) else r for r in records], str(path)


def _encoded(tokenizer: Tokenizer, documents: list[Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids of documents, and which count: of texts all, and the end of text behind each."""
    if not isinstance(documents[0], bytes):
        return encode_chats(tokenizer, documents)
    end = np.array([] if tokenizer.end is None else [tokenizer.end], np.int32)
    encoded = tokenizer.encode([text.decode() for text in documents])
    ended = (np.append(ids, end) for ids, _ in encoded)
    return [(ids, np.ones(len(ids), bool)) for ids in ended]


def _existing(spec: str) -> Path:
    """The path of a source; if there is none InputError with the best matches beside it."""
    path = Path(spec).expanduser()
    if path == STDLIB or path.exists():
        return path
    folder = path.parent if path.parent.is_dir() else Path()
    beside = [str(folder / name) for name in sorted(os.listdir(folder)) if name[0] != "."]
    close = nearest(spec, [STDLIB.name, *difflib.get_close_matches(spec, beside, n=5)])
    raise InputError(f"data {spec!r}: no such file or folder; {close}")


@contextmanager
def _readable(spec: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"data {spec!r} cannot be read: {error}") from error
