"""A [[links]] entry of a cluster file: which parts are wired to which, and how fast.

block    each of the larger kind with one of the smaller: 0, 1 of four with 0 of two
all      each with each
pairs    those that are listed
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scaling.meshes.cluster import LINK_KINDS, LinkSpec
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.provenance import Source, SourcedValue, ValueEntry, resolve


@dataclass(frozen=True)
class LinkEntry:
    """One [[links]] of a cluster file; `bandwidth` is one physical link, one direction."""

    parts: tuple[str, str]
    kind: str
    wiring: Literal["block", "all", "pairs"] = "block"
    count: int = 1
    pairs: tuple[tuple[int, int], ...] = ()
    bandwidth: ValueEntry | None = None
    latency: ValueEntry | None = None


def link_from(
    entry: LinkEntry, parts: Mapping[str, int], sources: Mapping[str, Source], where: str
) -> LinkSpec:
    """The link of a [[links]] entry; InputError for parts or kinds that do not exist."""
    where = f"{where}: link {' - '.join(entry.parts)}"
    check_keys(entry.parts, [*parts, "leaf"], where)
    check_keys([entry.kind], LINK_KINDS, f"{where}: kind")
    if "leaf" in entry.parts and entry.parts != ("nic", "leaf"):
        raise InputError(f'{where}: only NICs join leaves; write parts = ["nic", "leaf"]')
    if entry.count < 1:
        raise InputError(f"{where}: count = {entry.count} must be at least 1")
    _check_wiring(entry, parts, where)
    return LinkSpec(
        parts=entry.parts,
        kind=entry.kind,
        wiring=entry.wiring,
        bandwidth=figure_or_none(entry.bandwidth, sources, f"{where}: bandwidth"),
        latency=figure_or_none(entry.latency, sources, f"{where}: latency", zero_ok=True),
        count=entry.count,
        pairs=entry.pairs,
    )


def _check_wiring(entry: LinkEntry, parts: Mapping[str, int], where: str) -> None:
    """Raise InputError unless `wiring` and `pairs` name links that a host can have, each once."""
    first, second = entry.parts
    if entry.wiring == "block" and first == second:
        raise InputError(
            f'{where}: parts of one kind are joined by wiring = "all" (each with each) or "pairs"'
        )
    if bool(entry.pairs) != (entry.wiring == "pairs"):
        raise InputError(f'{where}: pairs and wiring = "pairs" go together; write both or neither')
    seen = set()
    for i, j in entry.pairs:
        if not (0 <= i < parts.get(first, 0) and 0 <= j < parts.get(second, 0)):
            raise InputError(
                f"{where}: pair [{i}, {j}] is outside a host, which has {parts.get(first, 0)} "
                f"{first} and {parts.get(second, 0)} {second}, counted from 0"
            )
        link = frozenset((i, j)) if first == second else (i, j)
        if link in seen or (first == second and i == j):
            raise InputError(f"{where}: pair [{i}, {j}] is there twice or joins a part to itself")
        seen.add(link)


def figure_or_none(
    entry: ValueEntry | None, sources: Mapping[str, Source], where: str, zero_ok: bool = False
) -> SourcedValue | None:
    """The figure of an entry that a file may leave out."""
    return None if entry is None else resolve(entry, sources, where, zero_ok)
