"""A Program as JSON: every field that differs from its default, arrays as lists.

{"format": 3, "name": ..., "mesh": {"fsdp": 8}, "buffers": [["fusion.3", 4096, "temporary"], ...],
 "schedule": [{"step": "kernel", "name": "dot.1", "flops": 2e9}, {"step": "loop", "body": [...]}]}
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.reading import convert, read_json
from scaling.program.ir import (
    Block,
    Branch,
    Buffer,
    Collective,
    Kernel,
    Loop,
    Operation,
    Origin,
    Program,
    Wait,
    kernels,
)

FORMAT = 3  # raised whenever a program written before cannot be read any more
STEPS: Mapping[str, type[Operation]] = {
    kind.__name__.lower(): kind for kind in (Kernel, Collective, Wait, Loop, Branch)
}
SIMPLE = ("name", "source", "mesh", "compiler_peak", "warnings", "versions", "is_xla")
OPTIONAL = ("device_ids", "module", "places")  # written unless empty
TEXTS = (  # fields of steps
    *("name", "kind", "dtype", "line", "place", "unknown", "inside", "library"),
)
NAMES = {kind: name for name, kind in STEPS.items()}


def program_dict(program: Program) -> dict[str, Any]:
    """The program as JSON has it; `read_program_dict` gives the same program back."""
    return {
        "format": FORMAT,
        **{name: plain(getattr(program, name)) for name in SIMPLE},
        **{name: plain(value) for name in OPTIONAL if (value := getattr(program, name))},
        "buffers": [plain((b.name, b.bytes, b.category, b.persistent)) for b in program.buffers],
        "schedule": _written(program.schedule),
    }


def read_program_dict(data: Mapping[str, Any], where: str = "program") -> Program:
    """A program from what `program_dict` gives.

    Raises:
        InputError: another format, or not a program.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, Mapping) else type(data).__name__
        raise InputError(
            f"{where} is no program of this version (format {found!r}, not {FORMAT}); make it again"
        )
    try:
        check_keys(data, ("format", *SIMPLE, *OPTIONAL, "buffers", "schedule"), "its document")
        return Program(
            data["name"],
            data["source"],
            dict(data["mesh"]),
            _read_block(data["schedule"]),
            tuple(Buffer(n, _number(b), owner, kept) for n, b, owner, kept in data["buffers"]),
            data["compiler_peak"],
            tuple(data["warnings"]),
            dict(data["versions"]),
            data.get("is_xla", True),
            _device_ids(data),
            convert(str, data.get("module", ""), "module"),
            convert(Mapping[str, str], data.get("places", {}), "places"),
        )
    except InputError as error:
        raise InputError(f"{where}: {error}; make it again") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} is not a program: {error!r}; make it again") from None


def _device_ids(data: Mapping[str, Any]) -> tuple[int, ...]:
    ids = convert(tuple[int, ...], data.get("device_ids", []), "device_ids")
    count = math.prod(data["mesh"].values())
    if ids and not (len(ids) == len(set(ids)) == count and min(ids) >= 0):
        raise InputError(f"device_ids must be {count} different devices, one of each partition")
    return ids


def save_program(program: Program, path: Path) -> None:
    """Write the program as one JSON document."""
    path.write_text(json.dumps(program_dict(program)), encoding="utf-8")


def load_program(path: Path) -> Program:
    """The program that `save_program` wrote.

    Raises:
        InputError: the file cannot be read, or holds no program of this format; it has a product
            of sizes that multiply nothing.
    """
    program = read_program_dict(read_json(path), str(path))
    try:
        for kernel, _ in kernels(program):
            is_empty = any(np.any(np.less_equal(size, 0)) for size in kernel.dims)
            if np.any(kernel.flops) and is_empty:
                said = f"{kernel.name} has {kernel.flops} FLOPs of dims {plain(kernel.dims)}"
                raise InputError(f"{path}: {said}; make it again")
    except TypeError as error:
        raise InputError(f"{path} is not a program: {error!r}; make it again") from None
    return program


def _written(value: Any) -> Any:
    """Operations as their fields that differ from the defaults, also within tuples."""
    if isinstance(value, Operation):
        named = {f: getattr(value, f.name) for f in fields(value)}
        differing = {f.name: _written(v) for f, v in named.items() if not _is_default(f, v)}
        return {"step": NAMES[type(value)]} | differing
    if isinstance(value, Origin):
        return [value.phase, value.layer]
    return [_written(part) for part in value] if isinstance(value, tuple) else plain(value)


def _read_block(data: list[dict[str, Any]]) -> Block:
    return tuple(_read_step(item) for item in data)


def _read_step(data: Mapping[str, Any]) -> Operation:
    kind = STEPS[data["step"]]
    where = f"step {data.get('name')}"
    check_keys(data, ("step", *(field.name for field in fields(kind))), where)
    for name, value in data.items():
        if name != "step" and isinstance(value, str) != (name in TEXTS):
            raise InputError(f"{where}: {name}={value!r} is of the wrong type")
    return kind(**{name: _value(name, value) for name, value in data.items() if name != "step"})


def _value(name: str, value: Any) -> Any:
    if name == "body":
        return _read_block(value)
    if name == "branches":
        return tuple(_read_block(branch) for branch in value)
    if name == "origin":
        return Origin(*value)
    if name == "groups":
        return tuple(tuple(group) for group in value)
    if name in ("dims", "shares"):
        return tuple(_number(size) for size in value)
    if name == "axes":
        return convert(tuple[str, ...], value, name)
    return tuple(value) if name in ("reads", "writes", "over") else _number(value)


def _number(value: Any) -> Any:
    """A list is one value per configuration."""
    return np.array(value) if isinstance(value, list) else value


def _is_default(field: Field, value: Any) -> bool:
    default = field.default
    return default is not MISSING and not isinstance(value, np.ndarray) and value == default


def plain(value: Any) -> Any:
    """Plain data: arrays and tuples as lists, numpy's scalars as numbers, dataclasses as dicts.

    What is not finite is None, for JSON cannot say it.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
