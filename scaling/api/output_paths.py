"""Files that a command is asked to write: found out before the work whether they can be.

--trace own.json      where own.json is the run that is read: refused, it would be written over
--trace a --dump-hlo a                                        refused, one of them would be lost
--plot step.txt                                               refused, it is no picture
"""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scaling.comparing.recorded import XPLANE
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.reading import writing
from scaling.report.xplane import XPROF


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise InputError unless every output can be written and none harms what is there.

    Args:
        outputs: option -> the file it names, a picture if it is of --plot; None: not asked for.
        inputs: files that are read, and folders that are left alone as a whole.
    """
    asked = [(option, path) for option, path in outputs.items() if path is not None]
    inputs = tuple(inputs)
    for number, (option, path) in enumerate(asked):
        if option.startswith("--plot"):
            from scaling.pictures.files import check_picture

            check_picture(option, path)
        parent = path.absolute().parent
        if not os.path.isdir(parent):
            there = os.path.exists(parent)
            lack = f"{path.parent} is no folder" if there else f"there is no folder {path.parent}"
            raise InputError(f"{option} {path}: {lack}")
        is_renewed = option == "--trace" and path.suffix == XPROF  # a folder of XProf
        if os.path.isdir(path) and not is_renewed:
            raise InputError(f"{option} {path} is a folder; name a file in it")
        if os.path.isfile(path) and is_renewed:
            raise InputError(f"{option} {path} is a file; a trace for XProf is a folder")
        if option == "--trace" and path.name.endswith(XPLANE):
            folder = path.name.removesuffix(XPLANE) + XPROF
            raise InputError(f"{option} {path}: for XProf name a folder, such as {folder}")
        for source in inputs:
            if _is_same(path, source) or path.resolve().is_relative_to(source.resolve()):
                raise InputError(
                    f"{option} {path} would write over {source}, which is read; choose another file"
                )
        for other, taken in asked[:number]:
            if _is_same(path, taken):
                raise InputError(f"{other} and {option} both name {path}; choose two files")
    for option, path in asked:  # devices and pipes, which may act on it, are not opened
        there = os.path.lexists(path)
        if not there or os.path.isfile(path):
            with writing(path, f"choose another {option}"):
                path.open("ab").close()
                if not there:
                    path.unlink()


def picture_paths(
    texts: Iterable[str], kinds: tuple[str, ...], default: str | None = None
) -> dict[str, Path]:
    """Return kind -> file from texts of --plot such as `timeline=step.svg`.

    A mere file is of the kind `default`; None: a kind must be given.

    Raises:
        InputError: a text without a kind, an unknown kind, one that is given twice.
    """
    paths: dict[str, Path] = {}
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals and default is not None:
            kind, name = default, text
        if not kind or not name:
            raise InputError(
                f"--plot {text}: write KIND=FILE, such as {kinds[0]}=picture.svg; kinds are "
                f"{', '.join(kinds)}"
            )
        check_keys([kind], kinds, "--plot", "kind")
        if kind in paths:
            raise InputError(f"--plot {kind} is given twice; give it once")
        paths[kind] = Path(name)
    return paths


def check_new_file(path: Path) -> None:
    """Raise InputError unless the file of --out can be written, also into folders still to make."""
    there = next(p for p in path.absolute().parents if os.path.lexists(p))
    if there == path.absolute().parent:
        check_outputs({"--out": path})
    elif not there.is_dir() or not os.access(there, os.W_OK):
        raise InputError(
            f"cannot write {path}: no folder can be made in {there}; choose another --out"
        )


def write_text(path: Path | str | None, text: str) -> None:
    """Write a text to a file that was asked for."""
    if path is not None:
        with writing(Path(path)):
            Path(path).write_text(text, encoding="utf-8")


def write_table(path: Path | None, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows of the same names as CSV to a file that was asked for."""
    if path is not None:
        with writing(path), path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0] if rows else [])
            table.writeheader()
            table.writerows(rows)


def _is_same(first: Path, second: Path) -> bool:
    """One ordinary file, also by a link. What is none (/dev/null) may be named twice."""
    if os.path.exists(first) and os.path.exists(second):
        return os.path.isfile(first) and first.samefile(second)
    return first.resolve() == second.resolve()
