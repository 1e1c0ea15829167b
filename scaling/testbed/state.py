"""Records of testbeds: one small file each, written before the first step, removed after the last.

~/.cache/scaling/testbeds/lab.json   {"complete": true, "testbed": {"name": "lab", ...}}

All names of a testbed follow from its file, so that `down` knows what to remove whatever stopped
`up`. Writers hold `scaling.testbed.machine.exclusive_lock`; readers do not, and a file may vanish
while they read.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from scaling.meshes.durable import make_folders, write_json
from scaling.meshes.errors import InputError, nearest, reworded
from scaling.meshes.reading import cache_path, read, read_json
from scaling.testbed.plan import TestbedConfig


@dataclass(frozen=True)
class Record:
    """A testbed, and whether `up` has made all of it."""

    testbed: TestbedConfig
    complete: bool = False


def state_folder() -> Path:
    """$SCALING_CACHE/testbeds, or ~/.cache/scaling/testbeds."""
    return cache_path("testbeds")


def write_state(testbed: TestbedConfig, folder: Path, complete: bool = False) -> None:
    """Record a testbed: before it is made, and again once it is complete. Whole or not at all.

    Raises:
        InputError: a new one has the name of another, or the folder cannot be written.
    """
    path = _path(testbed.name, folder)
    if not complete and os.path.lexists(path):
        option = "" if testbed.name == "default" else f" --name {testbed.name}"
        raise InputError(
            f"there is a testbed {testbed.name!r} already ({path}); remove it with: "
            f"scaling testbed down{option}, or choose another --name"
        )
    try:
        make_folders(folder)
        write_json(path, asdict(Record(testbed, complete)))
    except OSError as error:
        raise InputError(
            f"cannot write in {folder}: {error.strerror}; set SCALING_CACHE to a folder that can "
            "be written"
        ) from None


def read_state(name: str, folder: Path) -> Record:
    """The record of the testbed of that name.

    Raises:
        InputError: there is none, or its file is not one that `write_state` made.
    """
    path = _path(name, folder)
    if not path.exists():
        known = sorted(f.stem for f in folder.glob("*.json"))
        there_is = nearest(name, known) if known else "there is none at all"
        raise InputError(f"there is no testbed {name!r} (scaling testbed up makes one); {there_is}")
    with reworded(f"{path} is not the file of a testbed: "):
        data = read_json(path)
        if isinstance(data, dict):
            data.pop("version", None)  # of a record by an earlier release
        record = read(Record, data, "record")
    if record.testbed.name != name:
        raise InputError(f"{path} is about testbed {record.testbed.name!r}")
    return record


def remove_state(testbed: TestbedConfig, folder: Path) -> None:
    """Remove the record of a testbed, but not that of a later one of the same name."""
    try:
        recorded = read_state(testbed.name, folder).testbed
    except InputError:  # it is forgotten already
        return
    if recorded.id == testbed.id:
        _path(testbed.name, folder).unlink()


def all_states(folder: Path) -> Iterator[Record]:
    """Every record, by name."""
    for path in sorted(folder.glob("*.json")):
        try:
            yield read_state(path.stem, folder)
        except InputError:
            if path.exists():  # else its testbed has just been removed
                raise


def _path(name: str, folder: Path) -> Path:
    if Path(name).name != name:
        raise InputError(f"--name {name!r} cannot be a file's name")
    return folder / f"{name}.json"
