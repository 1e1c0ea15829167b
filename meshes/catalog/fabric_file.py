"""The [fabric] and [torus] tables of a cluster file: what joins hosts, and chips of a TPU slice."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scaling.meshes.cluster import TRANSPORTS, Fabric
from scaling.meshes.errors import InputError, Problems, check_keys
from scaling.meshes.provenance import Source, ValueEntry, resolve
from scaling.meshes.reading import read
from scaling.meshes.torus import Torus
from scaling.meshes.units import Unit

SMALLEST_RING = 3  # chips; between two a wraparound link would be the same link again


@dataclass(frozen=True)
class FabricEntry:
    """The [fabric] of a cluster file."""

    leaf_nodes: ValueEntry
    rails: bool = True
    spine_nodes: ValueEntry | None = None
    pod_nodes: ValueEntry | None = None
    leaf_oversubscription: ValueEntry | None = None
    spine_oversubscription: ValueEntry | None = None
    hop_latency: ValueEntry | None = None
    has_sharp: bool = False  # its switches can add up (SHARP)
    transport: str = "verbs"  # one of TRANSPORTS


@dataclass(frozen=True)
class TorusEntry:
    """The [torus] of a cluster file (meshes/torus.py); `bandwidth` is one link, one direction."""

    shape: tuple[int, ...]
    host: tuple[int, ...]
    wrap: int
    bandwidth: ValueEntry
    hop_latency: ValueEntry
    wrap_whole: bool = False


def fabric_from(data: Any, sources: Mapping[str, Source], where: str) -> Fabric:
    """The fabric of a [fabric] table; InputError names all that is wrong with it."""
    entry = read(FabricEntry, data, where)
    check_keys([entry.transport], TRANSPORTS, where, "transport")
    problems = Problems()
    figures: dict[str, Any] = {}
    for name, value in vars(entry).items():
        if isinstance(value, ValueEntry):
            unit: Unit = "s" if name == "hop_latency" else ""
            label = f"{where}: {name}"
            figures[name] = problems.attempt(resolve, value, sources, label, unit, unit == "s")
    for name, figure in figures.items():
        if name.endswith("_nodes") and figure is not None and figure.value != int(figure.value):
            problems.messages.append(
                f"{where}: {name} = {figure.value:g} must be a whole number of nodes"
            )
    problems.raise_any()
    return Fabric(
        **figures, rails=entry.rails, has_sharp=entry.has_sharp, transport=entry.transport
    )


def torus_from(
    data: Any, parts: Mapping[str, int], sources: Mapping[str, Source], where: str
) -> Torus:
    """The torus of a [torus] table; InputError where it does not fit the [parts]."""
    entry = read(TorusEntry, data, where)
    dims = len(entry.shape)
    if not dims or len(entry.host) != dims or min(*entry.shape, *entry.host) < 1:
        raise InputError(
            f"{where}: shape = {list(entry.shape)} and host = {list(entry.host)} must have as many "
            "dimensions, each of at least 1; write shape = [16, 16], host = [2, 4]"
        )
    chips = parts.get("chip", 0)
    if math.prod(entry.host) != chips or any(map(operator.mod, entry.shape, entry.host)):
        raise InputError(
            f"{where}: host = {list(entry.host)} must hold the {chips} chips of a node and divide "
            f"shape = {list(entry.shape)}"
        )
    if entry.wrap < SMALLEST_RING:
        raise InputError(f"{where}: wrap = {entry.wrap} must be at least {SMALLEST_RING}")
    return Torus(
        shape=entry.shape,
        host=entry.host,
        wrap=entry.wrap,
        bandwidth=resolve(entry.bandwidth, sources, f"{where}: bandwidth", "B/s"),
        hop_latency=resolve(entry.hop_latency, sources, f"{where}: hop_latency", "s", zero_ok=True),
        wrap_whole=entry.wrap_whole,
    )
