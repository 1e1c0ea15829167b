"""Which testbeds there are: one small file each, from before the first step to after the last.

~/.cache/scaling/testbeds/lab.json    {"version": 1, "testbed": {"name": "lab", "id": ...}}

The names of all that belongs to a testbed follow from its file. So whatever stops `up`, be it the
loss of power, `down` knows what to look for.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from meshes.errors import InputError, nearest
from scaling.testbed.plan import Bed, bed_dict, read_bed

VERSION = 1  # of the file's layout


def state_folder() -> Path:
    """$SCALING_CACHE/testbeds, or ~/.cache/scaling/testbeds."""
    base = os.environ.get("SCALING_CACHE", "") or Path.home() / ".cache" / "scaling"
    return Path(base) / "testbeds"


def write_state(bed: Bed, folder: Path) -> None:
    """Records a testbed, unless there is one of that name: whole or not at all.

    Raises:
        InputError: there is one already, or the folder cannot be written.
    """
    path, draft = _path(bed.name, folder), folder / f"{bed.name}.{bed.id}.draft"
    text = json.dumps({"version": VERSION, "testbed": bed_dict(bed)}, indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        try:
            os.link(draft, path)  # fails where the name is taken; a rename would replace the file
        finally:
            draft.unlink()
    except FileExistsError:
        raise InputError(
            f"there is a testbed {bed.name!r} already ({path}); remove it with: "
            f"scaling testbed down{_option(bed.name)}, or choose another --name"
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; set SCALING_CACHE to a folder that can be "
            "written"
        ) from None


def read_state(name: str, folder: Path) -> Bed:
    """The testbed of that name.

    Raises:
        InputError: there is none, or its file is not one that `write_state` made.
    """
    path = _path(name, folder)
    if not path.exists():
        known = sorted(f.stem for f in folder.glob("*.json"))
        there_is = nearest(name, known) if known else "there is none at all"
        raise InputError(f"there is no testbed {name!r}; {there_is}; scaling testbed up makes one")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise InputError(f"version {document['version']}, not {VERSION}")
        bed = read_bed(document["testbed"])
        if bed.name != name:
            raise InputError(f"it is about testbed {bed.name!r}")
        return bed
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the file of a testbed: {error}") from None


def remove_state(bed: Bed, folder: Path) -> None:
    """Forgets a testbed."""
    _path(bed.name, folder).unlink(missing_ok=True)


def all_states(folder: Path) -> Iterator[Bed]:
    """Every testbed, by name.

    Raises:
        InputError: a file is not that of a testbed.
    """
    for path in sorted(folder.glob("*.json")):
        yield read_state(path.stem, folder)


def _path(name: str, folder: Path) -> Path:
    if Path(name).name != name:
        raise InputError(f"--name {name!r} cannot be a file's name")
    return folder / f"{name}.json"


def _option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"
