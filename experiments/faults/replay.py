"""What a disk holds after a power cut, from the file calls before it.

    file      its text of the last fsync; empty without one
    folder    its names of the last fsync, or all names, or some of the names since

A file system keeps at least the first; one with a journal, as ext4, keeps names in their order, and
writes the text 30 s later. Of texts that were written and not synced nothing is left, the worst.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class File:
    """A file, and a copy of its text on the disk."""

    synced: Path | None = None


@dataclass(eq=False)
class Folder:
    """A folder: its names now, and those on the disk."""

    names: dict[str, "File | Folder"] = field(default_factory=dict)
    synced: dict[str, "File | Folder"] = field(default_factory=dict)


Left = dict[str, Any]  # names; of a file the path of its text or "", of a folder what is in it
Names = Callable[[Folder], dict[str, "File | Folder"]]


def replay(log: Path, top: Path) -> Iterator[tuple[Folder, int]]:
    """The folder `top` after each call of a log of `calls.c`, and the last step that was saved."""
    disk, saved = Folder(), 0
    for line in log.read_text().splitlines():
        number, call, path, second = line.split("\t")
        if call == "saved":
            saved = int(path)
        else:
            _apply(disk, call, _parts(path, top), _parts(second, top), Path(f"{log}.{number}"))
        yield disk, saved


def survivors(seed: int) -> dict[str, Names]:
    """The three things that may be left of a folder's names."""
    chance = random.Random(seed)

    def some(folder: Folder) -> dict[str, File | Folder]:
        both = sorted({*folder.names, *folder.synced})
        kept = {name: chance.choice((folder.names, folder.synced)).get(name) for name in both}
        return {name: node for name, node in kept.items() if node is not None}

    return {
        "only what was synced": lambda folder: folder.synced,
        "all names": lambda folder: folder.names,
        "some names": some,
    }


def left_of(folder: Folder, names: Names) -> Left:
    """What is left of a folder."""
    return {
        name: left_of(node, names) if isinstance(node, Folder) else str(node.synced or "")
        for name, node in names(folder).items()
    }


def write(left: Left, folder: Path) -> None:
    """Make a folder of what is left."""
    folder.mkdir()
    for name, what in left.items():
        if isinstance(what, dict):
            write(what, folder / name)
        elif what:
            shutil.copyfile(what, folder / name)
        else:
            (folder / name).touch()


def _parts(path: str, top: Path) -> tuple[str, ...]:
    return Path(path).relative_to(top).parts if path else ()


def _apply(disk: Folder, call: str, parts: tuple, second: tuple, text: Path) -> None:
    """Do what a call does; those that fail, of a name that is not there, do nothing."""
    if call == "sync":
        node = _find(disk, parts)
        if isinstance(node, Folder):
            node.synced = dict(node.names)
        elif node is not None:
            node.synced = text
        return
    parent = _find(disk, parts[:-1])
    if not isinstance(parent, Folder) or not parts:
        return
    if call == "create":
        parent.names.setdefault(parts[-1], File())
    elif call == "mkdir":
        parent.names.setdefault(parts[-1], Folder())
    elif call == "unlink":
        parent.names.pop(parts[-1], None)
    elif call == "rename" and parts[-1] in parent.names:
        to = _find(disk, second[:-1])
        assert isinstance(to, Folder), second
        to.names[second[-1]] = parent.names.pop(parts[-1])


def _find(disk: Folder, parts: tuple[str, ...]) -> File | Folder | None:
    """What has a name; None if nothing has."""
    node: File | Folder | None = disk
    for part in parts:
        node = node.names.get(part) if isinstance(node, Folder) else None
    return node
