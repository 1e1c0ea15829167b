"""The data that a run names, opened and split: `train.data`, `train.tokenizer`, `train.documents`.

    "stdlib", a folder, a text file      documents of text
    FILE.jsonl, .parquet, .arrow         documents of text, or chats; also folders of these, and
                                         data sets that Hugging Face's `save_to_disk` wrote
    FILE.bin                             token ids, read in pieces: uint16 if vocab_size <= 65536,
                                         else uint32 (FILE.uint16.bin, FILE.uint32.bin say it)
    {"a.jsonl": 3, "stdlib": 1}          a mixture: shares of the sequences

joined     one stream of all documents, each followed by the tokenizer's end of text
packed     documents side by side in a sequence; of chats only what the assistant says counts

All but token files are tokenized once (`scaling.training.data.shards`) and read in pieces.
"""

import difflib
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from scaling.meshes.errors import InputError, nearest
from scaling.run import Train
from scaling.training.data.documents import STDLIB
from scaling.training.data.packing import PackedRows, TokenizedDocuments
from scaling.training.data.pairs import open_pairs
from scaling.training.data.shards import tokenized
from scaling.training.data.token_file import total
from scaling.training.data.tokenizer import BYTES, open_tokenizer
from scaling.training.data.tokens import (
    HELD_OUT_FRACTION,
    Mixture,
    Source,
    TokenSplit,
    split_stream,
    token_file,
)


def open_data(train: Train, vocab_size: int, seq_len: int) -> Source:
    """What a run trains on, with the held-out part split off.

    Raises:
        InputError: nothing there, nothing usable in it, too few tokens, an id out of range.
    """
    packed = train.documents == "packed"
    open_one: Callable[..., TokenSplit] = functools.partial(open_source, packed=packed)
    open_one = open_pairs if train.pairs else open_one
    if isinstance(train.data, str):
        return open_one(train.data, vocab_size, seq_len, train.tokenizer)
    wrong = {name: weight for name, weight in train.data.items() if weight <= 0}
    if wrong or not train.data:
        raise InputError(f"train.data {train.data}: each source needs a share above 0")
    opened = (open_one(d, vocab_size, seq_len, train.tokenizer) for d in train.data)
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
            stream, description = token_file(path, vocab_size)
            return split_stream(stream, vocab_size, seq_len, spec, description)
        encoder = open_tokenizer(tokenizer, vocab_size)
        documents, where = tokenized(path, encoder)
        if packed:
            return _packed(spec, documents, where, seq_len)
    if documents.counted is not None:
        raise InputError(
            f"data '{path}' holds {len(documents):,} chats, of which only what the assistant says "
            "is to count: set train.documents to 'packed'"
        )
    ids, unit = documents.ids, f"tokens of {where}"
    if encoder is BYTES:  # between two documents, not behind the last
        ids, unit = ids[:-1], f"bytes of {where.removesuffix(' by bytes')}"
    description = f"{len(documents):,} documents, {len(ids):,} {unit}"
    return split_stream(ids, vocab_size, seq_len, spec, description)


def open_whole(spec: str, vocab_size: int, tokenizer: str | None = None) -> TokenizedDocuments:
    """All documents of a source, none of them held out; a `.bin` is one document.

    Raises:
        InputError: as `open_source`.
    """
    path = _existing(spec)
    with _readable(spec):
        if path.suffix == ".bin" and path.is_file():
            ids, _ = token_file(path, vocab_size)
            return TokenizedDocuments(ids, np.array([len(ids)]))
        return tokenized(path, open_tokenizer(tokenizer, vocab_size))[0]


def _packed(spec: str, documents: TokenizedDocuments, where: str, seq_len: int) -> TokenSplit:
    count = len(documents)
    if count < 2:
        raise InputError(
            f"data {spec!r} has {count} document; packed ones need 2 at least, one to train "
            "on and one held out: use train.documents 'joined'"
        )
    first = count - max(1, int(HELD_OUT_FRACTION * count))
    rows = PackedRows(documents.part(0, first), seq_len, f"data {spec!r}")
    held_out = PackedRows(documents.part(first, count), seq_len, f"held-out part of {spec!r}")
    tokens = len(documents.ids)
    counted = tokens if documents.counted is None else total(documents.counted)
    split = f", {rows.split:,} longer than a sequence and split" if rows.split else ""
    description = (
        f"{count:,} documents of {where}: {tokens:,} tokens, {counted / tokens:.0%} of which "
        f"count{split}; {len(rows):,} rows to train on, {rows.filled / seq_len / len(rows):.0%} "
        "full"
    )
    return TokenSplit(rows, held_out, description)


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
