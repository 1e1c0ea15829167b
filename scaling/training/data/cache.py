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
from collections.abc import Callable, Iterable
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
    found = _load(key)
    if found is not None:
        return found
    made, place = make(), cache_path("tokens")
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as folder:  # complete files or none
            for name in ARRAYS:
                part = Path(folder) / f"{key}.{name}.npy"
                np.save(part, getattr(made, name))
                part.replace(place / part.name)
            seal = Path(folder) / f"{key}.sha256"
            seal.write_text(_hash_of_arrays(key), encoding="ascii")
            seal.replace(place / seal.name)
    except OSError as error:
        warnings.warn(f"token ids are not stored: {error}; set SCALING_CACHE", stacklevel=2)
    return _load(key) or made


def _load(key: str) -> TokenizedDocuments | None:
    place = cache_path("tokens")
    try:
        seal = (place / f"{key}.sha256").read_text(encoding="ascii")
        if seal != _hash_of_arrays(key):
            raise ValueError("they do not match their hash")
        return TokenizedDocuments(*(np.load(path, mmap_mode="r") for path in _paths(key)))
    except (ValueError, EOFError) as error:
        warnings.warn(f"{place / key}.* are damaged and made again ({error})", stacklevel=3)
    except OSError:  # there are none
        pass
    return None


def _hash_of_arrays(key: str) -> str:
    """Hash of the key and of the files of its arrays."""
    digest = hashlib.sha256(key.encode())
    for path in _paths(key):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _paths(key: str) -> list[Path]:
    return [cache_path("tokens") / f"{key}.{name}.npy" for name in ARRAYS]
