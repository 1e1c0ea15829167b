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

from dataclasses import dataclass
from typing import Literal

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
class SourcedValue:
    """A number in SI units with its source."""

    value: float
    source: str
    date: str = ""
    note: str = ""
    url: str = ""
    seen: Seen = "text"


def overridden(value: float, note: str = "") -> SourcedValue:
    """A figure that the user gave in place of the catalogue's."""
    return SourcedValue(value, OVERRIDE, note=note)
