"""Which testbeds there are: one small file each, from before the first step to after the last.

~/.cache/scaling/testbeds/lab.json   {"version": 1, "complete": true, "testbed": {"name": "lab"...}}

The names of all that belongs to a testbed follow from its file. So whatever stops `up`, be it the
loss of power, `down` knows what to look for. Who writes or removes one is alone on the machine, see
`scaling.testbed.machine.alone`; who reads may be surprised.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scaling.meshes.errors import InputError, nearest
from scaling.testbed.plan import Bed, bed_dict, read_bed

VERSION = 1  # of the file's layout


def state_folder() -> Path:
    """$SCALING_CACHE/testbeds, or ~/.cache/scaling/testbeds."""
    base = os.environ.get("SCALING_CACHE", "") or Path.home() / ".cache" / "scaling"
    return Path(base) / "testbeds"


def write_state(bed: Bed, folder: Path) -> None:
    """Records a testbed that is about to be made, unless there is one of that name.

    Raises:
        InputError: there is one already, or the folder cannot be written.
    """
    path = _path(bed.name, folder)
    with _draft(bed, folder, complete=False) as draft:
        try:
            os.link(draft, path)  # fails where the name is taken; a rename would replace the file
        except FileExistsError:
            raise InputError(
                f"there is a testbed {bed.name!r} already ({path}); remove it with: "
                f"scaling testbed down{_option(bed.name)}, or choose another --name"
            ) from None


def complete_state(bed: Bed, folder: Path) -> None:
    """Records that all of a testbed is made.

    Raises:
        InputError: the folder cannot be written.
    """
    with _draft(bed, folder, complete=True) as draft:
        os.replace(draft, _path(bed.name, folder))


def is_complete(bed: Bed, folder: Path) -> bool:
    """Whether all of a testbed was made; else its `up` is still at work, or was killed."""
    try:
        document = json.loads(_path(bed.name, folder).read_text(encoding="utf-8"))
        return bool(document.get("complete", True))  # the first records did not say
    except (OSError, ValueError, AttributeError):
        return False


def read_state(name: str, folder: Path) -> Bed:
    """The testbed of that name.

    Raises:
        InputError: there is none, or its file is not one that `write_state` made.
    """
    path = _path(name, folder)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise InputError(f"version {document['version']}, not {VERSION}")
        bed = read_bed(document["testbed"])
        if bed.name != name:
            raise InputError(f"it is about testbed {bed.name!r}")
        return bed
    except FileNotFoundError:
        known = sorted(f.stem for f in folder.glob("*.json"))
        there_is = nearest(name, known) if known else "there is none at all"
        said = f"there is no testbed {name!r}; {there_is}; scaling testbed up makes one"
        raise InputError(said) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the file of a testbed: {error}") from None


def remove_state(bed: Bed, folder: Path) -> None:
    """Forgets a testbed, but not another one that has its name by now."""
    _remove_drafts(bed.name, folder)
    try:
        recorded = read_state(bed.name, folder)
    except InputError:  # it is forgotten already
        return
    if recorded.id == bed.id:
        _path(bed.name, folder).unlink()


def all_states(folder: Path) -> Iterator[Bed]:
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
def _draft(bed: Bed, folder: Path, complete: bool) -> Iterator[Path]:
    """A record that is to get its place: whole or not at all, also if the power fails."""
    document = {"version": VERSION, "complete": complete, "testbed": bed_dict(bed)}
    draft = folder / f"{bed.name}.{bed.id}.draft"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_drafts(bed.name, folder)
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
    """Of an `up` that was killed while it wrote."""
    for draft in folder.glob(f"{name}.*.draft"):
        draft.unlink()


def _to_disk(path: Path) -> None:
    """A file's text, or a folder's list of files, outlives a loss of power from now on."""
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
