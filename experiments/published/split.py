"""Which rows a constant may be fitted on: drawn by a hash, and written down before any fit."""

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal

Part = Literal["fit", "left"]


def is_first(key: str) -> bool:
    """Half of all keys: the first byte of their sha256 is below 128."""
    return hashlib.sha256(key.encode()).digest()[0] < 128


def part_of_key(key: str) -> Part:
    """Part of a key by the rule."""
    return "fit" if is_first(key) else "left"


@lru_cache
def split(path: Path) -> dict[Part, frozenset[str]]:
    """Keys of both parts, as written down before anything was fitted."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return {"fit": frozenset(document["fit"]), "left": frozenset(document["left"])}


def write_split(path: Path, keys: Iterable[str], rule: str) -> None:
    """Draw both parts and write them to `path` with the rule in words."""
    parts: dict[Part, list[str]] = {"fit": [], "left": []}
    for key in keys:
        parts[part_of_key(key)].append(key)
    path.write_text(json.dumps({"rule": rule, **parts}, indent=1) + "\n", encoding="utf-8")
