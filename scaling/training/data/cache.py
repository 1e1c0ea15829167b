"""Tokenized documents on disk, so that a run that starts again does not tokenize again.

    $SCALING_CACHE/tokens/KEY.ids.npy, KEY.counted.npy, KEY.ends.npy        memory-mapped
    $SCALING_CACHE/tokens/KEY.sha256                                        the hash of these files

A key is a hash of the text, of the tokenizer and of how documents are read. What cannot be read, or
does not match its hash, is made again; processes that write the same at once do not disturb one
another.
"""

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from scaling.meshes.reading import cache_path
from scaling.training.data.packing import TokenizedDocuments

READING = "1"  # another one where the same text gives other ids than before
ARRAYS = ("ids", "counted", "ends")


def key_of(texts: Iterable[bytes], *settings: str) -> str:
    """Hash of texts and of what else decides their ids."""
    digest = hashlib.sha256("\0".join([READING, *settings]).encode())
    for text in texts:
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


def load_or_make(key: str, make: Callable[[], TokenizedDocuments]) -> TokenizedDocuments:
    """The documents stored under `key`; if there are none, make and store them."""
    cache = cache_path("tokens")
    paths = [cache / f"{key}.{name}.npy" for name in ARRAYS]
    seal = cache / f"{key}.sha256"
    if (stored := _load(key, paths, seal)) is not None:
        return stored
    documents = make()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:  # complete files or none
            for path, name in zip(paths, ARRAYS, strict=True):
                np.save(Path(folder) / path.name, getattr(documents, name))
                (Path(folder) / path.name).replace(path)
            (Path(folder) / seal.name).write_text(_hash(key, paths), encoding="ascii")
            (Path(folder) / seal.name).replace(seal)
    except OSError as error:
        warnings.warn(f"token ids are not stored: {error}; set SCALING_CACHE", stacklevel=2)
    return _load(key, paths, seal) or documents


def _load(key: str, paths: Sequence[Path], seal: Path) -> TokenizedDocuments | None:
    try:
        if seal.read_text(encoding="ascii") != _hash(key, paths):
            raise ValueError("they do not match their hash")
        return TokenizedDocuments(*(np.load(path, mmap_mode="r") for path in paths))
    except (ValueError, EOFError) as error:
        damaged = seal.with_suffix("")
        warnings.warn(f"{damaged}.* are damaged and made again ({error})", stacklevel=3)
    except OSError:  # there are none
        pass
    return None


def _hash(key: str, paths: Sequence[Path]) -> str:
    digest = hashlib.sha256(key.encode())
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
