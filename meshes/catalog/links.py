"""One [[links]] entry of a cluster file: which parts are wired to which, and how fast.

block    each of the larger kind with one of the smaller: 0, 1 of four with 0 of two
all      each with each
pairs    those that are listed
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from scaling.meshes.cluster import LINK_KINDS, LinkSpec
from scaling.meshes.errors import InputError, Problems, check_keys
from scaling.meshes.provenance import Source, ValueEntry, resolve_optional
from scaling.meshes.reading import read


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
    data: Any, parts: Mapping[str, int], sources: Mapping[str, Source], where: str
) -> LinkSpec:
    """The link of a [[links]] entry.

    Raises:
        InputError: parts or kinds that do not exist, impossible wiring, bad figures; all of them.
    """
    entry = read(LinkEntry, data, where)
    where = f"{where}: {entry.kind} {' - '.join(entry.parts)}"
    problems = Problems()
    problems.attempt(check_keys, entry.parts, [*parts, "leaf"], where, "part")
    problems.attempt(check_keys, [entry.kind], LINK_KINDS, where, "kind of link")
    problems.attempt(_check_wiring, entry, parts, where)
    bandwidth = problems.attempt(
        resolve_optional, entry.bandwidth, sources, f"{where}: bandwidth", "B/s"
    )
    latency = problems.attempt(
        resolve_optional, entry.latency, sources, f"{where}: latency", "s", zero_ok=True
    )
    problems.raise_any()
    return LinkSpec(
        parts=entry.parts,
        kind=entry.kind,
        wiring=entry.wiring,
        bandwidth=bandwidth,
        latency=latency,
        count=entry.count,
        pairs=entry.pairs,
    )


def _check_wiring(entry: LinkEntry, parts: Mapping[str, int], where: str) -> None:
    """Raise InputError unless `wiring` and `pairs` name links that a host can have, each once."""
    first, second = entry.parts
    if entry.count < 1:
        raise InputError(f"{where}: count = {entry.count} must be at least 1")
    if "leaf" in entry.parts and entry.parts != ("nic", "leaf"):
        raise InputError(f'{where}: only NICs have links to leaves; write parts = ["nic", "leaf"]')
    if entry.wiring == "block" and first == second:
        raise InputError(
            f'{where}: parts of one kind are linked by wiring = "all" (each with each) or "pairs"'
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
            raise InputError(f"{where}: pair [{i}, {j}] is there twice or links a part to itself")
        seen.add(link)
