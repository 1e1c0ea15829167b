"""Tables of catalogue files: facts as they are, and figures with their units and sources.

    memory_bandwidth = 1e12 | "1TB/s" | { value = 1e12, source = "a key of [sources]", note = "" }

Every figure of the catalogue's own files has a source; a file of a user's own may leave it out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from scaling.meshes.catalog.schema import figure
from scaling.meshes.errors import InputError, Problems, nearest
from scaling.meshes.provenance import Source, SourcedValue
from scaling.meshes.reading import read
from scaling.meshes.units import parse_number

T = TypeVar("T")
Sources = Mapping[str, Source]


@dataclass(frozen=True)
class ValueEntry:
    """A figure as a file writes it with its source."""

    value: str | float
    source: str = ""  # a key of the file's `sources`; "": the file itself
    note: str = ""


def figure_from(data: Any, sources: Sources, where: str, name: str) -> SourcedValue:
    """The figure `name` that a file writes, in SI units, its source written out.

    Raises:
        InputError: the source is not listed, the text is no number of the figure's unit, or the
            value is negative, zero and no latency, or must be whole and is not.
    """
    kind = figure(name)
    entry = read(
        ValueEntry, {"value": data} if isinstance(data, int | float | str) else data, where
    )
    try:
        value = (
            parse_number(entry.value, kind.unit) if isinstance(entry.value, str) else entry.value
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if not (value > 0 or (value == 0 and name.endswith("latency"))):
        raise InputError(f"{where} = {value:g} must be positive")
    if kind.whole and not float(value).is_integer():
        raise InputError(f"{where} = {value:g} must be a whole number")
    if entry.source not in sources:
        raise InputError(
            f"{where}: source {entry.source!r} is not in [sources]; "
            f"{nearest(entry.source, [key for key in sources if key])}"
        )
    source = sources[entry.source]
    return SourcedValue(value, source.title, source.date, entry.note, source.url, source.seen)


def read_facts(cls: type[T], data: Any, sources: Sources, where: str) -> T:
    """Like `read`, of a dataclass with figures among its fields; InputError with all mistakes."""
    problems = Problems()
    if isinstance(data, Mapping):
        hints = get_type_hints(cls)
        names = {name for name, hint in hints.items() if SourcedValue in (hint, *get_args(hint))}
        figures = {
            name: problems.attempt(figure_from, data[name], sources, f"{where}: {name}", name)
            for name in data
            if name in names
        }
        wrong = SourcedValue(1.0, "")  # stands for figures that cannot be read
        data = {**data, **{name: figure or wrong for name, figure in figures.items()}}
    facts = problems.attempt(read, cls, data, where)
    problems.raise_any()
    assert facts is not None
    return facts


def read_table(data: Mapping[str, Any], key: str, where: str, problems: Problems) -> dict[str, Any]:
    """The table `key`; empty where it is missing or none."""
    table = data.get(key, {})
    if not isinstance(table, Mapping):
        problems.messages.append(f"{where}: {key}: expected a table of keys, got {table!r}")
        return {}
    return dict(table)


def read_sources(data: Mapping[str, Any], where: str, problems: Problems) -> dict[str, Source]:
    """[sources], an empty one in place of each that cannot be read; "" is the file itself."""
    entries = {
        key: problems.attempt(read, Source, value, f"{where}: sources.{key}") or Source("")
        for key, value in read_table(data, "sources", where, problems).items()
    }
    return entries | {"": Source(f"stated in {Path(where).name}")}
