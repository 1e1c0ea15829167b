"""A figure of the catalogue: a number that says where it comes from.

The sources of one file are written down once, under a short key; each figure points at one of them:

    [sources.datasheet]
    title = "NVIDIA H200 datasheet"
    date = "2024-09"
    [figures]
    memory_bandwidth = { value = 4.8e12, source = "datasheet" }

A file of a user's own may write plain numbers and texts with a unit: memory_bandwidth = "4.8TB/s".
A source says how it was seen, so that nobody takes a figure remembered for a figure read:

    text      the document itself, or a copy of it, was read
    quoted    another public document prints it and names this one
    computed  the figure follows from the rate in the title
    memory    commonly published; no text of it was found, nothing was checked
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from scaling.meshes.errors import InputError, nearest
from scaling.meshes.units import Unit, parse_number

OVERRIDE = "override"  # source of a figure that the user replaced
Seen = Literal["text", "quoted", "computed", "memory"]


@dataclass(frozen=True)
class Source:
    """A document or a measurement that figures are taken from."""

    title: str
    date: str = ""  # of the document, or of the look-up: "2023-07" or "2026-06-11"
    url: str = ""
    seen: Seen = "text"


@dataclass(frozen=True)
class ValueEntry:
    """A figure as a file writes it: `25e9`, `"25GB/s"` or `{ value = 25e9, source = "key" }`."""

    PLAIN: ClassVar = "value"  # the field that a bare number or text stands for
    value: str | float
    source: str = ""  # a key of the file's `sources`; "": the file itself
    note: str = ""


@dataclass(frozen=True)
class SourcedValue:
    """A number in SI units with its source."""

    value: float
    source: str
    date: str = ""
    note: str = ""
    url: str = ""
    seen: Seen = "text"


def file_itself(where: str) -> dict[str, Source]:
    """The source of figures that name none: the user's own file."""
    return {"": Source(f"stated in {Path(where).name}")}


def resolve(
    entry: ValueEntry,
    sources: Mapping[str, Source],
    where: str,
    unit: Unit = "",
    zero_ok: bool = False,
) -> SourcedValue:
    """The figure of `entry` in SI units, its source written out.

    Raises:
        InputError: the source is not listed, the text is no number of `unit`, or the value is
            negative, or zero without `zero_ok`.
    """
    try:
        value = parse_number(entry.value, unit) if isinstance(entry.value, str) else entry.value
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if not (value > 0 or (zero_ok and value == 0)):
        raise InputError(f"{where} = {value:g} must be positive")
    if entry.source not in sources:
        raise InputError(
            f"{where}: source {entry.source!r} is not in [sources]; "
            f"{nearest(entry.source, [key for key in sources if key])}"
        )
    source = sources[entry.source]
    return SourcedValue(value, source.title, source.date, entry.note, source.url, source.seen)


def resolve_optional(
    entry: ValueEntry | None,
    sources: Mapping[str, Source],
    where: str,
    unit: Unit = "",
    zero_ok: bool = False,
) -> SourcedValue | None:
    """Like `resolve`, None for a figure that a file leaves out."""
    return None if entry is None else resolve(entry, sources, where, unit, zero_ok)


def overridden(value: float, note: str = "") -> SourcedValue:
    """A figure that the user gave in place of the catalogue's."""
    return SourcedValue(value, OVERRIDE, note=note)
