"""A figure of the catalogue: a number that says where it comes from.

The sources of one file are written down once, under a short key; each figure points at one of them:

    [sources.datasheet]
    title = "NVIDIA H200 datasheet"
    date = "2024-09"
    [figures]
    memory_bandwidth = { value = 4.8e12, source = "datasheet" }
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshes.errors import InputError, nearest

OVERRIDE = "override"  # source of a figure that the user replaced


@dataclass(frozen=True)
class Source:
    """A document or a measurement that figures are taken from."""

    title: str
    date: str  # of the document, or of the look-up: "2023-07" or "2026-06-11"
    url: str = ""


@dataclass(frozen=True)
class Entry:
    """A figure as a file writes it: its source is a key of the file's `sources`."""

    value: float
    source: str
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A number in SI units with its source."""

    value: float
    source: str
    date: str
    note: str = ""


def resolve(
    entry: Entry, sources: Mapping[str, Source], where: str, zero_ok: bool = False
) -> Figure:
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
    return Figure(entry.value, source.title, source.date, entry.note)


def overridden(value: float, note: str = "") -> Figure:
    """A figure that the user gave in place of the catalogue's."""
    return Figure(value, OVERRIDE, "", note)
