"""Token sources: a stream of ids or packed documents, and mixtures; the same on every process.

Of a stream the last twentieth of the tokens is held out, of documents the last twentieth of them.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.packing import Row, TokenizedDocuments
from scaling.training.data.token_file import Stream, TokenFile

HELD_OUT_FRACTION = 0.05  # a twentieth is plenty for a mean loss
SAMPLED_CHUNKS, CHUNK = 16, 1 << 16  # token ids read before the first step: at most a million


class Windows(Sequence[Row]):
    """Non-overlapping windows of `seq_len` tokens, and of those that follow each: int32 both."""

    def __init__(self, tokens: Stream, seq_len: int, vocab_size: int, where: str):
        self.tokens, self.seq_len = tokens, seq_len
        self._vocab_size, self._where = vocab_size, where

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.seq_len

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        start = index * self.seq_len
        window = np.asarray(self.tokens[start : start + self.seq_len + 1], np.int32)
        check_ids(window, self._vocab_size, self._where)
        return window[:-1], window[1:]

    @property
    def documents(self) -> TokenizedDocuments:
        """The stream as one document."""
        return TokenizedDocuments(self.tokens, np.array([len(self.tokens)]))

    @property
    def streams(self) -> Sequence[Stream]:
        return [self.tokens]

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the order of the sequences, as JSON, besides batch and seed."""
        return {"tokens": len(self.tokens)}


@dataclass(frozen=True, eq=False)
class TokenSplit:
    """Sequences of a stream, or of packed documents: those trained on, and those that never are.

    A sequence is its inputs and targets [seq_len]; of documents also segments and weights.
    """

    train: Any  # Windows, PackedRows, or of pairs PairedRows
    held_out: Any
    description: str  # one line for people

    @property
    def seq_len(self) -> int:
        return self.train.seq_len

    @property
    def streams(self) -> Sequence[Stream]:
        return [*self.train.streams, *self.held_out.streams]

    @property
    def identity(self) -> dict[str, Any]:
        return self.train.identity


@dataclass(frozen=True, eq=False)
class Mixture:
    """Several sources; each gives its share of the sequences of every stretch of training."""

    names: tuple[str, ...]
    sources: tuple[TokenSplit, ...]
    weights: tuple[float, ...]  # above 0

    @property
    def seq_len(self) -> int:
        return self.sources[0].seq_len

    @property
    def description(self) -> str:
        return "; ".join(f"{share:.1%} {part.description}" for _, part, share in parts_of(self))

    @property
    def streams(self) -> Sequence[Stream]:
        return [stream for source in self.sources for stream in source.streams]

    @property
    def identity(self) -> dict[str, Any]:
        of_each = [source.identity for source in self.sources]
        return {"sources": of_each, "weights": list(self.weights)}


Source = TokenSplit | Mixture


def parts_of(source: Source) -> Iterator[tuple[str, TokenSplit, float]]:
    """Name, source and share of each source of a mixture; of another one itself, share 1."""
    if not isinstance(source, Mixture):
        yield "", source, 1.0
        return
    total = sum(source.weights)
    for name, one, weight in zip(source.names, source.sources, source.weights, strict=True):
        yield name, one, weight / total


def split_stream(
    tokens: Stream, vocab_size: int, seq_len: int, spec: str, description: str
) -> TokenSplit:
    """A stream with its end held out; InputError where a part is shorter than a window."""
    held_out = max(seq_len + 1, int(HELD_OUT_FRACTION * len(tokens)))
    if len(tokens) - held_out < seq_len + 1:
        raise InputError(
            f"data {spec!r} has {len(tokens):,} tokens; sequences of seq_len {seq_len:,} need at "
            f"least {2 * (seq_len + 1):,}: seq_len + 1 to train on and seq_len + 1 held out. "
            "Use more data or a smaller batch.seq_len."
        )
    windows = lambda part: Windows(part, seq_len, vocab_size, description)
    return TokenSplit(windows(tokens[:-held_out]), windows(tokens[-held_out:]), description)


def fingerprint(source: Source) -> np.ndarray:
    """Number of ids in all, and CRC-32 of the streams' lengths and of samples: uint32 [2]."""
    crc = total = 0
    for stream in source.streams:
        crc = zlib.crc32(len(stream).to_bytes(8, "little"), crc)
        total += len(stream)
        for chunk in _samples(stream):
            crc = zlib.crc32(chunk.tobytes(), crc)
    return np.array([total % (1 << 32), crc], np.uint32)


def token_file(path: Path, vocab_size: int) -> tuple[TokenFile, str]:
    """Token ids of a `.bin` file, and their description.

    Its name says their integer type, else it is the smaller one that holds the vocabulary.
    """
    stated = [name for name in ("uint16", "uint32") if path.name.endswith(f".{name}.bin")]
    dtype = np.dtype(stated[0] if stated else "uint16" if vocab_size <= 1 << 16 else "uint32")
    size = path.stat().st_size
    if size == 0 or size % dtype.itemsize:
        raise InputError(
            f"token file {path} has {size:,} bytes: not a whole, positive number of {dtype} tokens "
            f"of {dtype.itemsize} bytes. Write it with ids.astype('{dtype}').tofile(path); a name "
            "that ends in .uint16.bin or .uint32.bin says which width it has."
        )
    tokens = TokenFile(path, dtype)
    for chunk in _samples(tokens):
        check_ids(chunk, vocab_size, str(path))
    return tokens, f"{len(tokens):,} {dtype} tokens of {path}"


def check_ids(tokens: np.ndarray, vocab_size: int, where: str) -> None:
    """Raise InputError if a token id is outside the vocabulary (an embedding would clamp it).

    Ids in int32 that were larger than fits are negative.
    """
    smallest, largest = int(tokens.min()), int(tokens.max())
    if smallest < 0 or largest >= vocab_size:
        wrong = largest if largest >= vocab_size else smallest % (1 << 32)
        raise InputError(
            f"{where} holds token id {wrong:,}, but model.vocab_size is {vocab_size:,}. Use the "
            "vocabulary of the tokenizer that wrote the file; if the ids have another width, name "
            "the file .uint16.bin or .uint32.bin."
        )


def _samples(tokens: Stream) -> Iterator[np.ndarray]:
    for start in np.linspace(0, max(0, len(tokens) - CHUNK), SAMPLED_CHUNKS, dtype=int):
        yield np.asarray(tokens[start : start + CHUNK])
