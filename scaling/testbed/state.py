"""Records of testbeds: one small file each, written before the first step, removed after the last.

~/.cache/scaling/testbeds/lab.json   {"version": 1, "complete": true, "testbed": {"name": "lab"...}}

All names of a testbed follow from its file, so that `down` knows what to remove whatever stopped
`up`, a loss of power included. Writers hold `scaling.testbed.machine.exclusive_lock`; readers do
not, and a file may vanish while they read.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.reading import cache_path
from scaling.testbed.plan import TestbedConfig, read_config

VERSION = 1  # of the file's layout


def state_folder() -> Path:
    """$SCALING_CACHE/testbeds, or ~/.cache/scaling/testbeds."""
    return cache_path("testbeds")


def write_state(testbed: TestbedConfig, folder: Path) -> None:
    """Records a testbed before it is made, unless one of that name exists.

    Raises:
        InputError: there is one already, or the folder cannot be written.
    """
    path = _path(testbed.name, folder)
    with _draft(testbed, folder, complete=False) as draft:
        try:
            os.link(draft, path)  # fails where the name is taken; a rename would replace the file
        except FileExistsError:
            raise InputError(
                f"there is a testbed {testbed.name!r} already ({path}); remove it with: "
                f"scaling testbed down{_option(testbed.name)}, or choose another --name"
            ) from None


def complete_state(testbed: TestbedConfig, folder: Path) -> None:
    """Records that all of a testbed is made.

    Raises:
        InputError: the folder cannot be written.
    """
    with _draft(testbed, folder, complete=True) as draft:
        os.replace(draft, _path(testbed.name, folder))


def is_complete(testbed: TestbedConfig, folder: Path) -> bool:
    """True if `up` has made all of a testbed; else it is still running, or was killed."""
    try:
        document = json.loads(_path(testbed.name, folder).read_text(encoding="utf-8"))
        return bool(document["complete"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def read_state(name: str, folder: Path) -> TestbedConfig:
    """The testbed of that name.

    Raises:
        InputError: there is none, or its file is not one that `write_state` made.
    """
    path = _path(name, folder)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise InputError(f"version {document['version']}, not {VERSION}")
        testbed = read_config(document["testbed"])
        if testbed.name != name:
            raise InputError(f"it is about testbed {testbed.name!r}")
        return testbed
    except FileNotFoundError:
        known = sorted(f.stem for f in folder.glob("*.json"))
        there_is = nearest(name, known) if known else "there is none at all"
        message = f"there is no testbed {name!r}; {there_is}; scaling testbed up makes one"
        raise InputError(message) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the file of a testbed: {error}") from None


def remove_state(testbed: TestbedConfig, folder: Path) -> None:
    """Removes the record of a testbed, but not that of a later one of the same name."""
    _remove_drafts(testbed.name, folder)
    try:
        recorded = read_state(testbed.name, folder)
    except InputError:  # it is forgotten already
        return
    if recorded.id == testbed.id:
        _path(testbed.name, folder).unlink()


def all_states(folder: Path) -> Iterator[TestbedConfig]:
    """Every testbed, by name.

    Raises:
        InputError: a file is not that of a testbed.
    """
    for path in sorted(folder.glob("*.json")):
        try:
            yield read_state(path.stem, folder)
        except InputError:
            if path.exists():  # else its testbed has just been removed
                raise


@contextmanager
def _draft(testbed: TestbedConfig, folder: Path, complete: bool) -> Iterator[Path]:
    """A complete record on disk, to be renamed into its place; it survives a loss of power."""
    document = {"version": VERSION, "complete": complete, "testbed": asdict(testbed)}
    draft = folder / f"{testbed.name}.{testbed.id}.draft"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_drafts(testbed.name, folder)
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        _to_disk(draft)
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)
        _to_disk(folder)
    except OSError as error:
        raise InputError(
            f"cannot write in {folder}: {error.strerror}; set SCALING_CACHE to a folder that can "
            "be written"
        ) from None


def _remove_drafts(name: str, folder: Path) -> None:
    """Removes drafts of an `up` that was killed while it wrote."""
    for draft in folder.glob(f"{name}.*.draft"):
        draft.unlink()


def _to_disk(path: Path) -> None:
    """Flushes a file's text, or a folder's list of files, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _path(name: str, folder: Path) -> Path:
    if Path(name).name != name:
        raise InputError(f"--name {name!r} cannot be a file's name")
    return folder / f"{name}.json"


def _option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"
