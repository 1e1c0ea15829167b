"""Programs on disk, so that the same step is compiled once.

    ~/.cache/scaling/programs/KEY.json      the Program, and the hash of key, program and text
    ~/.cache/scaling/programs/KEY.hlo.gz    the text that it was read from

A key is a hash of everything that decides the program. Files that cannot be read, or that do not
match their hash, are made again, with a warning.
"""

import gzip
import hashlib
import json
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from scaling.compile.quiet import quiet
from scaling.meshes.reading import cache_path, content_hash, read_json
from scaling.program.ir import Program
from scaling.program.serialization import program_dict, read_program_dict


def folder() -> Path:
    """$SCALING_CACHE/programs, or ~/.cache/scaling/programs."""
    return cache_path("programs")


def key_of(*parts: str) -> str:
    """Hash of all texts that decide a program, and of the project's own sources."""
    return hashlib.sha256("\0".join([*parts, code_digest()]).encode()).hexdigest()


@cache
def code_digest() -> str:
    """Digest of the project's own sources: a changed model or reader makes another program."""
    digest = hashlib.sha256()
    for path, text in _sources(files("scaling"), "scaling"):  # meshes and models are in it
        digest.update(path.encode() + text)
    return digest.hexdigest()


def load_or_make(
    key: str, name: str, make: Callable[[], tuple[Program, str]]
) -> tuple[Program, str]:
    """The program stored under `key` and its text, under a name; if there is none, make it."""
    cached = load_cached(key)
    if cached is None:
        with quiet(f"compiling {name} ..."):
            cached = make()
        store(key, *cached)
    return replace(cached[0], name=name), cached[1]


def load_cached(key: str) -> tuple[Program, str] | None:
    """The program stored under `key` and its text; None, with a warning, if they are damaged."""
    path = folder() / f"{key}.json"
    try:
        text = gzip.decompress(path.with_suffix(".hlo.gz").read_bytes()).decode()
        kept = read_json(path)
        if content_hash([key, kept["program"], text]) != kept["sha256"]:
            raise ValueError("it does not match its hash")
        return read_program_dict(kept["program"]), text
    except (gzip.BadGzipFile, EOFError, KeyError, TypeError, ValueError, zlib.error) as error:
        warnings.warn(f"{path} is damaged and made again ({error})", stacklevel=3)
    except OSError:  # there is none
        pass
    return None


def store(key: str, program: Program, text: str) -> None:
    """Store a program and its text; a folder that cannot be written to is a warning."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder()) as place:  # complete files or none
            made = Path(place) / "program.json"
            document = program_dict(program)
            kept = {"sha256": content_hash([key, document, text]), "program": document}
            made.write_text(json.dumps(kept), encoding="utf-8")
            made.replace(folder() / f"{key}.json")
            packed = Path(place) / "text.gz"
            packed.write_bytes(gzip.compress(text.encode(), mtime=0))
            packed.replace(folder() / f"{key}.hlo.gz")
    except OSError as error:
        warnings.warn(f"the program is not stored: {error}; set SCALING_CACHE", stacklevel=2)


def _sources(place: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in sorted(place.iterdir(), key=lambda e: e.name):
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, path)
        elif entry.name.endswith(".py"):
            yield path, entry.read_bytes()
