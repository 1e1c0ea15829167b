"""Files and folders that survive a power cut: the disk has them when these functions return.

A program that writes a file has given it to the kernel, which writes it to the disk some 30 s
later; fsync(2) waits for that. A file's name is stored by its folder, which is synced as well.
"""

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_json(path: Path, document: Any) -> None:
    """As `write_whole`, of a document of JSON."""
    write_whole(path, json.dumps(document, indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Replace a file: its readers meet the old text or the new one, whole, also after a power cut.

    A link is replaced, and what it leads to is left alone. On return the disk has the new text.

    Raises:
        OSError: it cannot be written; the file is as it was, or its new name is not on the disk.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync(path.parent)
    except OSError as error:
        error.filename = str(path)
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def make_folders(folder: Path) -> None:
    """Make a folder and those above it which are missing, and sync their names."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        sync(path.parent)


def sync(path: Path) -> None:
    """Return when the disk has the contents of a file, or the names in a folder.

    Raises:
        OSError: the disk does not take them. A file system that cannot sync folders, and says
            EINVAL (fsync(2)), raises nothing: no program can do more there.
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        error.filename = str(path)
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(opened)
