"""Tokenized documents on disk, so that a run that starts again does not tokenize again.

    $SCALING_CACHE/tokens/KEY.ids.npy, KEY.counted.npy, KEY.ends.npy        memory-mapped

A key is a hash of the text, of the tokenizer and of how documents are read. What cannot be read is
made again; processes that write the same at once do not disturb one another.
"""

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from scaling.meshes.reading import cache_path
from scaling.train.data.packing import TokenizedDocuments

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
    except OSError as error:
        warnings.warn(f"token ids are not stored: {error}; set SCALING_CACHE", stacklevel=2)
    return _load(key) or made


def _load(key: str) -> TokenizedDocuments | None:
    place = cache_path("tokens")
    try:
        arrays = [np.load(place / f"{key}.{name}.npy", mmap_mode="r") for name in ARRAYS]
    except (OSError, ValueError, EOFError):  # missing, or cut short
        return None
    return TokenizedDocuments(*arrays)
