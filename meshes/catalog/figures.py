"""Figures of catalogue files: what figures.toml says of each, and how files state them.

    memory_bandwidth = 1e12 | "1TB/s" | { value = 1e12, source = "a key of [sources]", note = "" }

Every figure of the catalogue's own files has a source; a file of a user's own may leave it out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from scaling.meshes.accelerator import peak_name
from scaling.meshes.errors import InputError, Problems, nearest, reworded
from scaling.meshes.provenance import Source, SourcedValue
from scaling.meshes.reading import package_toml, read
from scaling.meshes.units import Unit, parse_number

T = TypeVar("T")

# Formats in which chips of the catalogue multiply, or others may.
FORMATS = ("bf16", "fp16", "fp8", "fp4", "int8", "int4", "int32", "tf32", "fp32", "fp64")
PEAKS = {peak_name(dtype): dtype for dtype in FORMATS}


@dataclass(frozen=True)
class Figure:
    """One kind of figure, in SI units."""

    unit: Unit = ""
    whole: bool = False
    low: float = 0.0  # plausible figures lie between the two, which are plausible too
    high: float = math.inf
    source: str = ""  # what the two are

    def times(self, count: int) -> "Figure":
        """The sum of `count` such figures."""
        return replace(self, low=count * self.low, high=count * self.high)


@dataclass(frozen=True)
class _Table:
    figures: dict[str, Figure]
    links: dict[str, Figure]


_TABLE = read(_Table, package_toml("meshes/catalog/figures.toml"), "figures.toml")
FIGURES, LINKS = _TABLE.figures, _TABLE.links


def figure(name: str) -> Figure:
    """The entry of the figure `name`; a ratio of any value for a name that has no entry."""
    return FIGURES.get("peak" if name.startswith(peak_name("")) else name, Figure())


@dataclass(frozen=True)
class ValueEntry:
    """A figure as a file writes it with its source."""

    value: str | float
    source: str = ""  # a key of the file's `sources`; "": the file itself
    note: str = ""


class CatalogueFile(Problems):
    """A catalogue file while it is read: its tables, its sources, and what is wrong with it."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        super().__init__()
        self.data = data
        self.where = where  # the file's name in messages
        self.sources: dict[str, Source] = {}
        for key, value in self.table("sources").items():
            source = self.attempt(read, Source, value, f"{where}: sources.{key}")
            self.sources[key] = source or Source("")
        self.sources[""] = Source(f"stated in {Path(where).name}")

    def table(self, key: str) -> dict[str, Any]:
        """The table `key`; empty where it is missing or none."""
        table = self.data.get(key, {})
        if not isinstance(table, Mapping):
            self.messages.append(f"{self.where}: {key}: expected a table of keys, got {table!r}")
            return {}
        return dict(table)

    def figure(self, data: Any, where: str, name: str) -> SourcedValue:
        """The figure `name` that the file writes, in SI units, its source written out.

        Raises:
            InputError: the source is not listed, the text is no number of the figure's unit, or the
                value is negative, zero and no latency, or must be whole and is not.
        """
        kind = figure(name)
        is_plain = isinstance(data, int | float | str)
        entry = read(ValueEntry, {"value": data} if is_plain else data, where)
        value = entry.value
        if isinstance(value, str):
            with reworded(f"{where}: "):
                value = parse_number(value, kind.unit)
        if not (value > 0 or (value == 0 and name.endswith("latency"))):
            raise InputError(f"{where} = {value:g} must be positive")
        if kind.whole and not value.is_integer():
            raise InputError(f"{where} = {value:g} must be a whole number")
        if entry.source not in self.sources:
            raise InputError(
                f"{where}: source {entry.source!r} is not in [sources]; "
                f"{nearest(entry.source, filter(None, self.sources))}"
            )
        source = self.sources[entry.source]
        return SourcedValue(value, source.title, source.date, entry.note, source.url, source.seen)

    def facts(self, cls: type[T], data: Any, where: str) -> T:
        """Like `read`, of a dataclass with figures among its fields; InputError names all wrong."""
        problems = Problems()
        if isinstance(data, Mapping):
            hints = get_type_hints(cls)
            wrong = SourcedValue(1.0, "")  # stands for figures that cannot be read
            stated = {
                name: problems.attempt(self.figure, value, f"{where}: {name}", name) or wrong
                for name, value in data.items()
                if SourcedValue in (hints.get(name), *get_args(hints.get(name)))
            }
            data = {**data, **stated}
        facts = problems.attempt(read, cls, data, where)
        problems.raise_any()
        assert facts is not None
        return facts
