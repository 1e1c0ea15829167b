"""A stream of token ids: bytes of text, or a file of ids; the same on every process.

    "stdlib"    the running Python's own standard-library sources, byte by byte: no download
    a folder    every file below it that is UTF-8 text, byte by byte (a single text file works too)
    FILE.bin    token ids, memory-mapped: uint16 if vocab_size <= 65536, else uint32
                (FILE.uint16.bin and FILE.uint32.bin say it themselves)

The last twentieth of it is held out.
"""

import difflib
import os
import sysconfig
import zlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scaling.meshes.errors import InputError, nearest

STDLIB = Path("stdlib")  # a folder of that name is reached as an absolute path
HELD_OUT_FRACTION = 0.05  # of the token stream; a twentieth is plenty for a mean loss
BYTE_VOCABULARY = 256  # values of one byte
SEPARATOR = b"\0"  # one zero byte between documents: text never contains it
NOT_TEXT = {"__pycache__"}  # folders nobody means when naming a folder of text
NOT_STDLIB = NOT_TEXT | {"site-packages", "dist-packages", "test", "tests", "idlelib"}
SAMPLED_CHUNKS, CHUNK = 16, 1 << 16  # token ids read before the first step: at most a million


@dataclass(frozen=True, eq=False)
class TokenSource:
    """A token stream, split once into what is trained on and what never is."""

    train: np.ndarray  # unsigned integers [tokens]
    held_out: np.ndarray  # unsigned integers [tokens]
    vocab_size: int
    description: str  # one line for people


def open_source(spec: str, vocab_size: int, seq_len: int) -> TokenSource:
    """The token stream that `spec` names, with the held-out part split off.

    Args:
        spec: "stdlib", a folder, a text file, or a `.bin` file of token ids.
        vocab_size: ids must lie below it; at least 256 for text, which is read byte by byte.
        seq_len: tokens per sequence; each part must hold at least one window of seq_len + 1.

    Raises:
        InputError: nothing there, nothing usable in it, too few tokens, an id out of range.
    """
    path = Path(spec).expanduser()
    if path != STDLIB and not path.exists():
        raise InputError(f"data {spec!r}: no such file or folder; {_nearest_source(path, spec)}")
    try:
        read = _token_file if path.suffix == ".bin" and path.is_file() else _text
        tokens, description = read(path, vocab_size)
    except OSError as error:
        raise InputError(f"data {spec!r} cannot be read: {error}") from error
    held_out = max(seq_len + 1, int(HELD_OUT_FRACTION * len(tokens)))
    if len(tokens) - held_out < seq_len + 1:
        raise InputError(
            f"data {spec!r} has {len(tokens):,} tokens; sequences of seq_len {seq_len:,} need at "
            f"least {2 * (seq_len + 1):,}: seq_len + 1 to train on and seq_len + 1 held out. "
            "Use more data or a smaller batch.seq_len."
        )
    return TokenSource(tokens[:-held_out], tokens[-held_out:], vocab_size, description)


def fingerprint(source: TokenSource) -> np.ndarray:
    """Fingerprint of a source: tokens of both parts, CRC-32 of samples; uint32 [3]."""
    crc = 0
    for tokens in (source.train, source.held_out):
        for chunk in _samples(tokens):
            crc = zlib.crc32(chunk.tobytes(), crc)
    sizes = len(source.train), len(source.held_out)
    return np.array([size % (1 << 32) for size in (*sizes, crc)], np.uint32)


def encode(text: str) -> np.ndarray:
    """Byte-level tokens of a text: int32 [bytes of its UTF-8 form]."""
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def decode(tokens: Iterable[int]) -> str:
    """Text of byte-level tokens; what is not UTF-8, or no byte at all, reads as U+FFFD."""
    never_in_utf8 = 0xFF
    known = (int(t) if t < BYTE_VOCABULARY else never_in_utf8 for t in tokens)
    return bytes(known).decode(errors="replace")


def _text(path: Path, vocab_size: int) -> tuple[np.ndarray, str]:
    """Bytes of all documents of a text source, joined by one zero byte, and their description."""
    if vocab_size < BYTE_VOCABULARY:
        raise InputError(
            f"data '{path}' is read byte by byte and needs model.vocab_size >= {BYTE_VOCABULARY}; "
            f"the model has {vocab_size}. Raise vocab_size or use a token file (.bin)."
        )
    documents, where = _stdlib() if path == STDLIB else _documents(path)
    if not any(documents):
        raise InputError(f"data '{path}': no text in {where}. Name a folder with text files.")
    joined = np.frombuffer(SEPARATOR.join(documents), np.uint8)
    return joined, f"{len(documents):,} documents, {len(joined):,} bytes of {where}"


def _stdlib() -> tuple[list[bytes], str]:
    """Sources of the standard library of the Python that runs."""
    files = _visible_files(Path(sysconfig.get_path("stdlib")), NOT_STDLIB)
    sources = [file.read_bytes() for file in files if file.suffix == ".py"]
    return sources, "the Python standard library"


def _documents(path: Path) -> tuple[list[bytes], str]:
    """Contents of the text files at `path`, and the path with the number of binaries left out."""
    files = [path] if path.is_file() else _visible_files(path, NOT_TEXT)
    contents = [file.read_bytes() for file in files]
    documents = [document for document in contents if _is_text(document)]
    skipped = len(contents) - len(documents)
    if path.is_file() and skipped:
        raise InputError(
            f"data '{path}' is a binary file ({len(contents[0]):,} bytes, not UTF-8 text). A file "
            "of token ids must end in .bin; otherwise name a text file or a folder of them."
        )
    return documents, f"{path} ({skipped:,} binary files skipped)" if skipped else str(path)


def _visible_files(root: Path, left_out: Container[str] = ()) -> Iterator[Path]:
    """Files below `root` in the order of a sorted walk, without hidden or left-out names."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(s for s in subfolders if s[0] != "." and s not in left_out)
        paths = (Path(folder, name) for name in sorted(files) if name[0] != ".")
        yield from (path for path in paths if path.is_file())


def _is_text(document: bytes) -> bool:
    """True if the bytes are UTF-8 without NUL."""
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return SEPARATOR not in document


def _nearest_source(path: Path, spec: str) -> str:
    """Suggestions for a misspelt source: "stdlib" or the best matches beside the missing path."""
    folder = path.parent if path.parent.is_dir() else Path()
    beside = [str(folder / name) for name in sorted(os.listdir(folder)) if name[0] != "."]
    return nearest(spec, [STDLIB.name, *difflib.get_close_matches(spec, beside, n=5)])


def _token_file(path: Path, vocab_size: int) -> tuple[np.ndarray, str]:
    """Token ids of a `.bin` file, memory-mapped, and their description."""
    dtype = _item_type(path, vocab_size)
    size = path.stat().st_size
    if size == 0 or size % dtype.itemsize:
        raise InputError(
            f"token file {path} has {size:,} bytes: not a whole, positive number of {dtype} tokens "
            f"of {dtype.itemsize} bytes. Write it with ids.astype('{dtype}').tofile(path); a name "
            "that ends in .uint16.bin or .uint32.bin says which width it has."
        )
    tokens = np.memmap(path, dtype, mode="r")
    for chunk in _samples(tokens):
        check_ids(chunk, vocab_size, str(path))
    return tokens, f"{len(tokens):,} {dtype} tokens of {path}"


def _item_type(path: Path, vocab_size: int) -> np.dtype:
    """Integer type of a token file: by its name, else the smaller one that holds the ids."""
    named = [name for name in ("uint16", "uint32") if path.name.endswith(f".{name}.bin")]
    return np.dtype(named[0] if named else "uint16" if vocab_size <= 1 << 16 else "uint32")


def _samples(tokens: np.ndarray) -> Iterator[np.ndarray]:
    """Parts spread evenly over a stream."""
    for start in np.linspace(0, max(0, len(tokens) - CHUNK), SAMPLED_CHUNKS, dtype=int):
        yield tokens[start : start + CHUNK]


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
