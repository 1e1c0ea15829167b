"""What the TOML files of the catalogue look like, and how they become accelerators and clusters.

A cluster file describes one host by its parts, the links between them, and the rule of the fabric:

    [parts]
    chip = 8
    nvswitch = 1
    [[links]]
    parts = ["chip", "nvswitch"]
    kind = "nvlink"
    wiring = "all"
    count = 18
    bandwidth = { value = 25e9, source = "datasheet" }

Keys before the first table: has_nvls (NVLink SHARP), peer_access, domain_nodes (nodes that
share one NVLink domain), cpu (the make of the hosts' CPUs). [fabric] is the network, with
`has_sharp` for SHARP and `transport` where it is not InfiniBand's verbs; [torus] holds the links
from chip to chip of a TPU slice.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator, peak_name
from scaling.meshes.catalog.links import LinkEntry, figure_or_none, link_from
from scaling.meshes.cluster import CPUS, HOST_PARTS, TRANSPORTS, Cluster, Fabric
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.provenance import Source, ValueEntry, resolve
from scaling.meshes.reading import read
from scaling.meshes.torus import Torus

SMALLEST_RING = 3  # chips; between two a wraparound link would be the same link again
INTEGER_FIGURES = (
    "cores",
    "fpus_per_core",
    "l2_cache",
    "registers_per_core",
    "threads_per_core",
    "shared_memory_per_core",
    "shared_memory_per_block",
)


@dataclass(frozen=True)
class AcceleratorFile:
    """One accelerators/*.toml."""

    name: str
    title: str
    vendor: str
    peaks: dict[str, ValueEntry] = field(default_factory=dict)  # dense FLOP/s by number format
    figures: dict[str, ValueEntry] = field(default_factory=dict)  # FIGURE_NAMES
    sources: dict[str, Source] = field(default_factory=dict)


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


@dataclass(frozen=True)
class ClusterFile:
    """One clusters/*.toml."""

    name: str
    title: str
    accelerator: str  # a catalogue name, or a TOML file beside this one
    layout_source: str  # where the counts of parts and the wiring come from
    parts: dict[str, int]
    links: tuple[LinkEntry, ...]
    sources: dict[str, Source]
    fabric: FabricEntry | None = None
    domain_nodes: ValueEntry | None = None  # nodes in one NVLink domain
    peer_access: bool = True
    virtual_devices: bool = False
    has_nvls: bool = False  # its NVSwitches can add up (NVLink SHARP)
    cpu: str = ""  # one of CPUS
    torus: TorusEntry | None = None


def accelerator_from(data: Any, where: str) -> Accelerator:
    """The accelerator that a file's `data` describes; InputError where it does not."""
    file = read(AcceleratorFile, data, where)
    check_keys(file.figures, FIGURE_NAMES, f"{where}: figures")
    figures = {k: resolve(e, file.sources, f"{where}: {k}") for k, e in file.figures.items()}
    peaks = {k: resolve(e, file.sources, f"{where}: peaks.{k}") for k, e in file.peaks.items()}
    values: dict[str, Any] = {
        k: int(f.value) if k in INTEGER_FIGURES else f.value for k, f in figures.items()
    }
    return Accelerator(
        name=file.name,
        title=file.title,
        vendor=file.vendor,
        peaks={dtype: figure.value for dtype, figure in peaks.items()},
        figures={**{peak_name(d): f for d, f in peaks.items()}, **figures},
        **values,
    )


def cluster_from(data: Any, accelerator: Accelerator, where: str) -> Cluster:
    """One node of the cluster that a file's `data` describes; InputError where it does not."""
    file = read(ClusterFile, data, where)
    check_keys(file.parts, HOST_PARTS, f"{where}: parts")
    check_keys([file.cpu], CPUS, f"{where}: cpu")
    negative = [kind for kind, count in file.parts.items() if count < 0]
    if negative:
        raise InputError(f"{where}: parts: {negative[0]} = {file.parts[negative[0]]} is negative")
    if file.parts.get("chip", 0) < 1:
        raise InputError(f"{where}: parts has no chip; write chip = 8 for eight accelerators")
    chips = ValueEntry(file.parts["chip"], file.layout_source)
    domain = figure_or_none(file.domain_nodes, file.sources, f"{where}: domain_nodes")
    torus = _torus(file, where)
    slice_nodes = torus.chips // file.parts["chip"] if torus else 1
    return Cluster(
        name=file.name,
        title=file.title,
        accelerator=accelerator,
        nodes=1,
        devices_per_node=file.parts["chip"],
        parts=file.parts,
        links=tuple(link_from(link, file.parts, file.sources, where) for link in file.links),
        layout=resolve(chips, file.sources, f"{where}: layout_source"),
        fabric=_fabric(file.fabric, file.sources, f"{where}: fabric"),
        peer_access=file.peer_access,
        virtual_devices=file.virtual_devices,
        domain_nodes=int(domain.value) if domain else slice_nodes,
        has_nvls=file.has_nvls,
        cpu=file.cpu,
        torus=torus,
    )


def _fabric(entry: FabricEntry | None, sources: Mapping[str, Source], where: str) -> Fabric | None:
    if entry is None:
        return None
    check_keys([entry.transport], TRANSPORTS, f"{where}: transport")
    return Fabric(
        leaf_nodes=resolve(entry.leaf_nodes, sources, f"{where}: leaf_nodes"),
        rails=entry.rails,
        spine_nodes=figure_or_none(entry.spine_nodes, sources, f"{where}: spine_nodes"),
        pod_nodes=figure_or_none(entry.pod_nodes, sources, f"{where}: pod_nodes"),
        leaf_oversubscription=figure_or_none(entry.leaf_oversubscription, sources, where),
        spine_oversubscription=figure_or_none(entry.spine_oversubscription, sources, where),
        hop_latency=figure_or_none(
            entry.hop_latency, sources, f"{where}: hop_latency", zero_ok=True
        ),
        has_sharp=entry.has_sharp,
        transport=entry.transport,
    )


def _torus(file: ClusterFile, where: str) -> Torus | None:
    entry, where = file.torus, f"{where}: torus"
    if entry is None:
        return None
    if file.domain_nodes is not None:
        raise InputError(f"{where}: leave out domain_nodes; the largest slice says how many")
    dims = len(entry.shape)
    if not dims or len(entry.host) != dims or min(*entry.shape, *entry.host) < 1:
        raise InputError(
            f"{where}: shape = {list(entry.shape)} and host = {list(entry.host)} must have as many "
            "dimensions, each of at least 1; write shape = [16, 16], host = [2, 4]"
        )
    chips = file.parts["chip"]
    if math.prod(entry.host) != chips or any(map(operator.mod, entry.shape, entry.host)):
        raise InputError(
            f"{where}: host = {list(entry.host)} must hold the {chips} chips of a node and divide "
            f"shape = {list(entry.shape)}"
        )
    if entry.wrap < SMALLEST_RING:
        raise InputError(f"{where}: wrap = {entry.wrap} must be at least {SMALLEST_RING}")
    latency = resolve(entry.hop_latency, file.sources, f"{where}: hop_latency", zero_ok=True)
    return Torus(
        shape=entry.shape,
        host=entry.host,
        wrap=entry.wrap,
        bandwidth=resolve(entry.bandwidth, file.sources, f"{where}: bandwidth"),
        hop_latency=latency,
        wrap_whole=entry.wrap_whole,
    )
