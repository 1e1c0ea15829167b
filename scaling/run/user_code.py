"""Functions in files of the user, `file.py:function`: found, called, blamed by file and line."""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from scaling.meshes.errors import InputError, nearest


class Loaded(BaseException):
    """Ends the loading of a file by its own call of a function that needs no more of it."""


def described(made: Any) -> str:
    """What a user's function returned: `an int`, `(int, list)`, `nothing`."""
    if isinstance(made, tuple):
        return f"({', '.join(type(part).__name__ for part in made)})"
    name = type(made).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    return "nothing" if made is None else f"{article} {name}"


def named_function(text: str) -> tuple[Path, str]:
    """Return the file and the name of a function, `file.py:function`; nothing is loaded."""
    file, _, function = text.rpartition(":")
    if not Path(file).is_file():
        raise InputError(f"{text}: there is no file {file}")
    if not function:
        raise InputError(f"{text}: no function is named; write {file}:FUNCTION")
    return Path(file), function


def user_function(text: str) -> tuple[Path, Callable[..., Any]]:
    """Return the file and the function that `file.py:function` names.

    Raises:
        InputError: no such file or function, or the file's code fails.
    """
    path, function = named_function(text)
    module = run_user_code(path, lambda: _load_module(path))
    make = getattr(module, function, None)
    if not callable(make):
        public = [n for n in vars(module) if callable(getattr(module, n)) and n[0] != "_"]
        raise InputError(f"{path} has no function {function!r}; {nearest(function, public)}")
    return path, make


def _load_module(path: Path) -> ModuleType:
    """Return the file as a module, under a name that no other module has."""
    spec = importlib.util.spec_from_file_location(f"run_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses defined in the file look themselves up there
    with suppress(Loaded):
        spec.loader.exec_module(module)
    return module


@contextmanager
def folder_on_path(file: Path) -> Iterator[None]:
    """Let modules beside a file be imported meanwhile."""
    folder = str(file.absolute().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def run_user_code(path: Path, make: Callable[[], Any]) -> Any:
    """Return what `make` returns; errors of the user's file become one message with its line.

    Modules beside the file can be imported, as where Python runs it.
    """
    try:
        with folder_on_path(path):
            return make()
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # of a script that runs as it is imported
        frames = traceback.extract_tb(error.__traceback__)
        file = path.absolute()
        lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == file]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f"{path}, line {line}" if line else str(path)
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"{where}: {type(error).__name__}: {first}") from error
