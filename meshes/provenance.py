"""A figure of the catalogue: a number that says where it comes from.

The sources of one file are written down once, under a short key; each figure points at one of them:

    [sources.datasheet]
    title = "NVIDIA H200 datasheet"
    date = "2024-09"
    [figures]
    memory_bandwidth = { value = 4.8e12, source = "datasheet" }

A source says how it was seen, so that nobody takes a figure remembered for a figure read:

    text      the document itself, or a copy of it, was read
    quoted    another public document prints it and names this one
    computed  the figure follows from the rate in the title
    memory    commonly published; no text of it was found, nothing was checked
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scaling.meshes.errors import InputError, nearest

OVERRIDE = "override"  # source of a figure that the user replaced
Seen = Literal["text", "quoted", "computed", "memory"]


@dataclass(frozen=True)
class Source:
    """A document or a measurement that figures are taken from."""

    title: str
    date: str  # of the document, or of the look-up: "2023-07" or "2026-06-11"
    url: str = ""
    seen: Seen = "text"


@dataclass(frozen=True)
class ValueEntry:
    """A figure as a file writes it: its source is a key of the file's `sources`."""

    value: float
    source: str
    note: str = ""


@dataclass(frozen=True)
class SourcedValue:
    """A number in SI units with its source."""

    value: float
    source: str
    date: str
    note: str = ""
    url: str = ""
    seen: Seen = "text"


def resolve(
    entry: ValueEntry, sources: Mapping[str, Source], where: str, zero_ok: bool = False
) -> SourcedValue:
    """The figure of `entry`, its source written out.

    Raises:
        InputError: the source is not listed, or the value is negative, or zero without `zero_ok`.
    """
    if not (entry.value > 0 or (zero_ok and entry.value == 0)):
        raise InputError(f"{where} = {entry.value:g} must be positive")
    if entry.source not in sources:
        raise InputError(
            f"{where}: source {entry.source!r} is not in [sources]; "
            f"{nearest(entry.source, sources)}"
        )
    source = sources[entry.source]
    return SourcedValue(entry.value, source.title, source.date, entry.note, source.url, source.seen)


def overridden(value: float, note: str = "") -> SourcedValue:
    """A figure that the user gave in place of the catalogue's."""
    return SourcedValue(value, OVERRIDE, "", note)
