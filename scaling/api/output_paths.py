"""Files that a command is asked to write: found out before the work whether they can be.

--trace own.json      where own.json is the run that is read: refused, it would be written over
--trace a --dump-hlo a                                        refused, one of them would be lost
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.meshes.reading import writing


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise InputError unless every output can be written and none harms what is there.

    Args:
        outputs: option -> the file it names; None: not asked for.
        inputs: files that are read, and folders that are left alone as a whole.
    """
    asked = [(option, path) for option, path in outputs.items() if path is not None]
    inputs = tuple(inputs)
    for number, (option, path) in enumerate(asked):
        parent = path.absolute().parent
        if not os.path.isdir(parent):
            there = os.path.exists(parent)
            lack = f"{path.parent} is no folder" if there else f"there is no folder {path.parent}"
            raise InputError(f"{option} {path}: {lack}")
        if os.path.isdir(path):
            raise InputError(f"{option} {path} is a folder; name a file in it")
        for source in inputs:
            if _is_same(path, source) or path.resolve().is_relative_to(source.resolve()):
                raise InputError(
                    f"{option} {path} would write over {source}, which is read; choose another file"
                )
        for other, taken in asked[:number]:
            if _is_same(path, taken):
                raise InputError(f"{other} and {option} both name {path}; choose two files")
    for option, path in asked:
        _try_to_open(option, path)


def check_new_file(option: str, path: Path) -> None:
    """Raise InputError unless the file can be written, also into folders that are still to make."""
    there = next(p for p in path.absolute().parents if os.path.lexists(p))
    if there == path.absolute().parent:
        check_outputs({option: path})
    elif not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(
            f"cannot write {path}: no folder can be made in {there}; choose another {option}"
        )


def _try_to_open(option: str, path: Path) -> None:
    """Open a file to write and leave it as it is; not devices and pipes, which may act on that."""
    there = os.path.lexists(path)
    if not there or os.path.isfile(path):
        with writing(path, f"choose another {option}"):
            path.open("ab").close()
            if not there:
                path.unlink()


def _is_same(first: Path, second: Path) -> bool:
    """One ordinary file, also by a link. What is none (/dev/null) may be named twice."""
    if os.path.exists(first) and os.path.exists(second):
        return os.path.isfile(first) and first.samefile(second)
    return first.resolve() == second.resolve()
