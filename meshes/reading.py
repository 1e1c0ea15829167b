"""Plain data (JSON, TOML) to frozen dataclasses, strictly: no misspelt key is a silent default.

read(Batch, {"global_batch": 8, "seq_len": 128}, "run.json: batch") == Batch(8, 128)
"""

import dataclasses
import json
import math
import os
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from scaling.meshes.errors import CONTROL, InputError, Problems, check_keys, nearest, reworded
from scaling.meshes.units import count_with_prefix

T = TypeVar("T")
LARGEST = 2**63 - 1  # what an int64 holds; also keeps infinity and NaN out
PACKAGE = Path(__file__).parents[
    1
]  # the folder `scaling`; its data files lie beside what reads them
MOST_TEXT = 2**28  # characters of a file, chosen by this project: /dev/zero has no end


def read(cls: type[T], data: Any, where: str) -> T:
    """An instance of the dataclass `cls` from a mapping of its field names.

    Args:
        cls: a dataclass; nested dataclasses, tuples, `X | None` and Literal fields are understood.
        data: the mapping, as `json` or `tomllib` made it.
        where: what is being read, for messages.

    Raises:
        InputError: unknown or missing keys and values of the wrong type, all of them, a line each;
            errors of `__post_init__` are passed on with `where` in front.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected a table of keys, got {data!r}")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    problems, hints = Problems(), _hints(cls)  # type: ignore[arg-type]
    for key in data:
        problems.attempt(check_keys, [key], fields, where)
    typos = "".join(problems.messages)
    none = dataclasses.MISSING
    required = [n for n, f in fields.items() if f.default is none and f.default_factory is none]
    absent = [name for name in required if name not in data]
    missing = [name for name in absent if f"did you mean {name!r}" not in typos]
    if missing:
        problems.messages.append(f"{where}: missing {', '.join(map(repr, missing))}")
    values = {
        key: problems.attempt(convert, hints[key], value, f"{where}: {key}")
        for key, value in data.items()
        if key in fields
    }
    problems.raise_any()
    with reworded(f"{where}: "):
        return cls(**values)


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Types of the fields; cached, for a profile has hundreds of instances of a few classes."""
    return typing.get_type_hints(cls)


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`, or an InputError that says what was expected."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, where)
    if origin is Literal:
        if value in args:
            return value
        raise InputError(f"{where}: {value!r} is not a choice; {nearest(str(value), args)}")
    if origin is tuple:
        return _convert_tuple(args, value, where)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected a table of keys, got {value!r}")
        return _convert_all(((k, args[1], v, f"{where}: {k}") for k, v in value.items()))
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else read(hint, value, where)  # type: ignore[arg-type]
    return _convert_scalar(hint, value, where)


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dictionary (an `object_pairs_hook`); InputError for a key twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise InputError(f"key {', '.join(map(repr, twice))} is given twice")
    return table


def read_text(path: Path) -> str:
    """The text of a file; InputError if it is missing, not text, or longer than MOST_TEXT."""
    try:
        with path.open(encoding="utf-8-sig") as file:  # some editors begin with a mark of the order
            text = file.read(MOST_TEXT + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error}") from None
    except ValueError as error:  # a path that no file can have
        raise InputError(f"cannot read {str(path)!r}: {error}") from None
    if len(text) > MOST_TEXT:
        raise InputError(f"{path} has more than {MOST_TEXT:,} characters, the most that are read")
    return text


def parse_json(text: str | bytes, where: str) -> Any:
    """The JSON document in a text, called `where` in messages.

    Raises:
        InputError: not JSON, a key twice, half of a surrogate pair, which no text can hold.
    """
    try:
        text = text if isinstance(text, str) else text.decode()
        document = json.loads(text, object_pairs_hook=without_repeats)
        if "\\ud" in text or "\\uD" in text:  # pairs and halves of them
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:  # UnicodeError is one
        raise InputError(f"{where} is not JSON: {error}") from None


def content_hash(document: Any) -> str:
    """SHA-256 of a JSON document, as text: what was damaged on the disk has another one."""
    import hashlib  # with OpenSSL, which few commands need

    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The TOML document in a text, called `where` in messages."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not TOML: {error}") from None


def package_toml(path: str) -> dict[str, Any]:
    """The TOML document in one of our own files, by its path in the package."""
    file = PACKAGE / path
    return parse_toml(file.read_text(encoding="utf-8"), file.name)


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables in one, later ones first; tables in them are merged as well."""
    result: dict[str, Any] = {}
    for key, value in (item for table in tables for item in table.items()):
        both_tables = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = {**result[key], **value} if both_tables else value
    return result


@cache
def say_once(line: str) -> None:
    """Print what a reader of a file has to know on stderr, once in a process."""
    print(line, file=sys.stderr, flush=True)


def read_json(path: Path) -> Any:
    """The JSON document in a file; InputError if it is missing, empty or not JSON."""
    return parse_json(read_text(path), str(path))


@contextmanager
def writing(path: Path, otherwise: str = "") -> Iterator[None]:
    """Make an OSError of what writes to `path` an InputError, ending with what to do otherwise."""
    try:
        yield
    except OSError as error:
        hint = otherwise and f"; {otherwise}"
        raise InputError(f"cannot write {path}: {error.strerror}{hint}") from None


def cache_path(name: str) -> Path:
    """$SCALING_CACHE/name, or ~/.cache/scaling/name."""
    return Path(os.environ.get("SCALING_CACHE", "") or Path.home() / ".cache" / "scaling", name)


def _convert_union(args: tuple, value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    options = [str] if isinstance(value, str) and str in args else list(args)
    options = [a for a in options if a is not type(None)]
    for option in options[:-1]:
        try:
            return convert(option, value, where)
        except InputError:
            continue
    return convert(options[-1], value, where)


def _convert_tuple(args: tuple, value: Any, where: str) -> tuple:
    if not isinstance(value, (list, tuple)):
        wanted = f", such as {json.dumps(value.split(','))}" if isinstance(value, str) else ""
        raise InputError(f"{where}: expected a list{wanted}, got {value!r}")
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(value)
    if len(args) != len(value):
        raise InputError(f"{where}: expected {len(args)} values, got {len(value)}: {value!r}")
    pairs = enumerate(zip(args, value, strict=True))
    return tuple(_convert_all((i, a, v, f"{where}[{i}]") for i, (a, v) in pairs).values())


def _convert_all(items: Iterable[tuple[Any, Any, Any, str]]) -> dict[Any, Any]:
    """Dictionary of converted values from (key, hint, value, where); collects all errors."""
    problems = Problems()
    values = {key: problems.attempt(convert, *rest) for key, *rest in items}
    problems.raise_any()
    return values


def _is_number(value: Any) -> bool:
    """True for a finite number of at most LARGEST."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _convert_scalar(hint: type, value: Any, where: str) -> Any:
    if hint in (int, float) and isinstance(value, str):
        number = count_with_prefix(value)
        value = value if number is None else number
    if hint is int and _is_number(value) and value == int(value):
        return int(value)
    if hint is float and _is_number(value):
        return float(value)
    if hint is str and isinstance(value, str) and CONTROL.search(value):
        raise InputError(f"{where}: {value!r} has control characters, which would move the cursor")
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is float and isinstance(value, float) and LARGEST < abs(value) < math.inf:
        raise InputError(f"{where}: {value:g} is too large; numbers are read up to {LARGEST:.1e}")
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        raise InputError(
            f"{where}: expected int, got one of {value.bit_length()} bits; 63 bits can be read"
        )
    raise InputError(f"{where}: expected {hint.__name__}, got {value!r}")
