"""Programs on disk, so that the same step is compiled once.

    ~/.cache/scaling/programs/KEY.json      the Program
    ~/.cache/scaling/programs/KEY.hlo.gz    the text that it was read from

A key is a hash of everything that decides the program. Files that cannot be read are made again.
"""

import gzip
import hashlib
import os
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
from scaling.program.ir import Program
from scaling.program.serialization import load_program, save_program

OURS = ("scaling",)  # scaling.meshes and scaling.models are in it


def folder() -> Path:
    """$SCALING_CACHE/programs, or ~/.cache/scaling/programs."""
    base = os.environ.get("SCALING_CACHE", "") or Path.home() / ".cache" / "scaling"
    return Path(base) / "programs"


def key_of(*parts: str) -> str:
    """One name for all the texts that decide a program, and for the project's own sources."""
    return hashlib.sha256("\0".join([*parts, code_digest()]).encode()).hexdigest()


@cache
def code_digest() -> str:
    """Of the project's own sources: a changed model or reader makes another program."""
    digest = hashlib.sha256()
    for package in OURS:
        for path, text in _sources(files(package), package):
            digest.update(path.encode() + text)
    return digest.hexdigest()


def found_or_made(
    key: str, name: str, make: Callable[[], tuple[Program, str]]
) -> tuple[Program, str]:
    """The program kept under `key` and its text; where there is none it is made and kept.

    Args:
        key: of everything that decides it.
        name: for the program; does not decide it.
        make: compiles and reads.
    """
    program, text = find(key) or _made(key, name, make)
    return replace(program, name=name), text


def find(key: str) -> tuple[Program, str] | None:
    """The program kept under `key` and its text; None where one of them cannot be read."""
    place = folder()
    try:
        text = gzip.decompress((place / f"{key}.hlo.gz").read_bytes()).decode()
        return (load_program(place / f"{key}.json"), text) if text else None
    except (OSError, EOFError, ValueError, zlib.error):  # missing, cut short, of an older format
        return None


def keep(key: str, program: Program, text: str) -> None:
    """Keep a program and its text; a folder that cannot be written to is a warning."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder()) as place:  # whole files or none
            made = Path(place) / "program.json"
            save_program(program, made)
            made.replace(folder() / f"{key}.json")
            packed = Path(place) / "text.gz"
            packed.write_bytes(gzip.compress(text.encode(), mtime=0))
            packed.replace(folder() / f"{key}.hlo.gz")
    except OSError as error:
        warnings.warn(f"the program is not kept: {error}; set SCALING_CACHE", stacklevel=2)


def _made(key: str, name: str, make: Callable[[], tuple[Program, str]]) -> tuple[Program, str]:
    with quiet(f"compiling {name} ..."):
        program, text = make()
    keep(key, program, text)
    return program, text


def _sources(place: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in sorted(place.iterdir(), key=lambda e: e.name):
        path = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, path)
        elif entry.name.endswith(".py"):
            yield path, entry.read_bytes()
