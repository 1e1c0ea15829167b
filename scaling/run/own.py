"""A run of anybody's model and step, as plain data: the function that makes it, and its loop.

    {"name": "my", "function": "my.py:run", "settings": {"width": 256}, "mesh": {"data": 8},
     "train": {"steps": 1000, ...}}

The function takes a jax mesh, and settings by name: `def run(mesh, width=256)`. What it takes is
read from the text of its file, of which nothing is executed before the devices are there.
"""

import ast
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError, check_fields, check_keys
from scaling.meshes.reading import read, read_json, read_text
from scaling.run.document import read_run, run_dict
from scaling.run.run import ClusterChoice, Run
from scaling.run.user_code import named_function

MESH = "mesh"  # the parameter of that name is one, also where it has a default


@dataclass(frozen=True)
class Loop:
    """When a loop ends, saves and evaluates: the settings of `Train` that are not our model's."""

    steps: int = 1000
    checkpoint_every: int | None = None
    checkpoint_minutes: float | None = None
    keep_checkpoints: int = 2
    eval_every: int = 0
    watchdog_minutes: float | None = None
    xla: dict[str, bool | int | str] = field(default_factory=dict, hash=False)
    deterministic: bool = False

    def __post_init__(self) -> None:
        check_fields(self, ("steps", "keep_checkpoints"), 1, where="train.")
        minutes = ("checkpoint_minutes", "watchdog_minutes")
        check_fields(self, ("checkpoint_every", "eval_every", *minutes), 0, where="train.")


@dataclass(frozen=True)
class OwnRun:
    """A run whose state, step and data a function makes."""

    name: str
    function: str  # file.py:function; of one that was given itself, its name
    settings: dict[str, Any] = field(default_factory=dict)  # what it takes besides the mesh
    mesh: dict[str, int] = field(default_factory=dict)  # axes of any names; {}: all as `data`
    train: Loop = Loop()
    cluster: ClusterChoice | None = None
    make: Callable[..., Any] | None = field(default=None, compare=False, repr=False)


def own_run(function: str | Callable[..., Any], changes: Mapping[str, Any]) -> OwnRun | None:
    """Return the run that a function makes of a mesh; None if it takes none.

    Args:
        function: file.py:function, or the function.
        changes: value by key: `train.steps` and so on are the loop's, others the function's.

    Raises:
        InputError: no such file, or a key that neither has.
    """
    text = function if isinstance(function, str) else function.__name__
    taken = _taken_from_file(text) if isinstance(function, str) else _taken(function)
    if taken is None:
        return None
    loop: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in changes.items():
        table, _, inner = key.partition(".")
        if table == "train":
            loop |= {inner: value} if inner else value
        elif "**" not in taken:
            check_keys([key], [*taken, "train.steps"], f"--set: {text}", "setting")
        if table != "train":
            settings[key] = value
    file, _, name = text.rpartition(":")
    stem = Path(file).stem if file else name
    return OwnRun(
        stem if name in (stem, "run") else f"{stem}-{name}",
        text,
        settings,
        train=read(Loop, loop, "--set: train"),
        make=None if isinstance(function, str) else function,
    )


def load_any(path: Path) -> Run | OwnRun:
    """Return the run of a run.json, ours or of a function."""
    data = read_json(path)
    if isinstance(data, dict) and "function" in data:
        return read(OwnRun, data, str(path))
    return read_run(data, str(path))


def document_of(run: Run | OwnRun) -> dict[str, Any]:
    """Return the document of run.json; `load_any` reads it back."""
    if isinstance(run, Run):
        return run_dict(run)
    given = {k: v for k, v in vars(run).items() if k != "make" and v is not None}
    document: dict[str, Any] = json.loads(json.dumps(given, default=vars))
    return document


def _taken(function: Callable[..., Any]) -> list[str] | None:
    """Names of what a function takes besides a mesh, `**` for any; None if it takes no mesh."""
    parameters = inspect.signature(function).parameters.values()
    plain = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    needed = [p.name for p in plain if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    names = ["**" if p.kind is p.VAR_KEYWORD else p.name for p in plain]
    return _besides_mesh(names, needed)


def _taken_from_file(text: str) -> list[str] | None:
    """The same of `file.py:function`, where the file defines it; None where it does not."""
    path, name = named_function(text)
    try:
        body = ast.parse(read_text(path)).body
    except SyntaxError as error:
        raise InputError(f"{path}, line {error.lineno}: SyntaxError: {error.msg}") from None
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        return None
    given = found[-1].args
    plain = [a.arg for a in (*given.posonlyargs, *given.args)]
    needed = plain[: len(plain) - len(given.defaults)]
    names = [*plain, *(a.arg for a in given.kwonlyargs), *(["**"] if given.kwarg else [])]
    return _besides_mesh(names, needed)


def _besides_mesh(names: list[str], needed: list[str]) -> list[str] | None:
    mesh = MESH if MESH in names else needed[0] if needed else None
    return None if mesh is None else [name for name in names if name != mesh]
