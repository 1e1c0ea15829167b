"""Cluster files of the catalogue (clusters/*.toml), and how they become clusters.

A cluster file describes one host by its parts, the links between them, and the network:

    name = "lab"
    accelerator = "rtx4090"
    [parts]
    chip = 4
    socket = 1
    nic = 1
    [[links]]
    parts = ["chip", "socket"]
    kind = "pcie"
    bandwidth = "31.5GB/s"       # one physical link, one direction; or 31.5e9, or
                                 # { value = 31.5e9, source = "a key of [sources]" }
    latency = "0.5us"

docs/clusters.md lists every key. All mistakes of a file are reported together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.catalog.accelerator_file import read_sources, read_table
from scaling.meshes.catalog.fabric_file import fabric_from, torus_from
from scaling.meshes.catalog.links import link_from
from scaling.meshes.cluster import CPUS, HOST_PARTS, Cluster, Fabric, LinkSpec
from scaling.meshes.errors import InputError, Problems, check_keys
from scaling.meshes.provenance import Source, ValueEntry, resolve, resolve_optional
from scaling.meshes.reading import convert, read
from scaling.meshes.torus import Torus


@dataclass(frozen=True)
class ClusterFile:
    """The keys of clusters/*.toml before its first table; the tables are read one by one."""

    name: str
    accelerator: str  # a catalogue name, or a TOML file beside this one
    title: str | None = None  # None: the name
    layout_source: str = ""  # key of `sources`: where the counts of parts and the wiring come from
    domain_nodes: ValueEntry | None = None  # nodes in one NVLink domain
    peer_access: bool = True
    virtual_devices: bool = False
    has_nvls: bool = False  # its NVSwitches can add up (NVLink SHARP)
    cpu: str = ""  # one of CPUS


TABLES = ("parts", "links", "sources", "fabric", "torus")
CLUSTER_KEYS = (*(f.name for f in fields(ClusterFile)), *TABLES)
# Keys that users expect at the top of a cluster file -> where they belong.
MISPLACED = {
    "nodes": "a file describes one host; --nodes N says how many",
    "gpus": "write it below [parts]: chip = 8",
    "gpus_per_node": "write it below [parts]: chip = 8",
    "chip": "write it below [parts]: chip = 8",
    "devices_per_node": "write it below [parts]: chip = 8",
    "gpu": 'write accelerator = "h100-sxm"',
    "chips": "write it below [parts]: chip = 8",
    "bandwidth": "write it below [[links]], once for each kind of link",
    "memory": "it is a figure of the accelerator; --override memory=40GB changes it for one run",
}


def kind_of(data: Mapping[str, Any], where: str) -> Literal["accelerator", "cluster"]:
    """The kind of thing that a file describes, judged by its keys.

    Raises:
        InputError: the file has no key of either.
    """
    if {"peaks", "figures", "vendor"} & set(data):
        return "accelerator"
    if {"accelerator", *TABLES, *MISPLACED} & set(data):
        return "cluster"
    raise InputError(
        f"{where} is neither a cluster file (accelerator, [parts], [[links]]) nor an accelerator "
        "file (vendor, [peaks], [figures]); `scaling cluster show rtx4090-8 --toml` prints an "
        "example to start from"
    )


@dataclass
class Draft:
    """A cluster file as far as it could be read, and what is wrong with the rest."""

    problems: Problems
    links: list[LinkSpec] = field(default_factory=list)
    fabric: Fabric | None = None
    chip: Accelerator | None = None
    cluster: Cluster | None = None  # None: there are problems


def read_cluster(data: Any, find_chip: Callable[[str], Accelerator], where: str) -> Draft:
    """One node of the cluster that a file's `data` describes, as far as it could be read.

    Args:
        data: the parsed file.
        find_chip: the accelerator of a name that the file gives.
        where: the file's name in messages.
    """
    problems = Problems()
    draft = Draft(problems)
    top = {key: value for key, value in data.items() if key not in TABLES}
    for key in [key for key in top if key in MISPLACED]:
        problems.messages.append(f"{where}: no key {key!r} in a cluster file: {MISPLACED[key]}")
        del top[key]
    for key in top:
        problems.attempt(check_keys, [key], CLUSTER_KEYS, where)
    known = {key: value for key, value in top.items() if key in CLUSTER_KEYS}
    file = problems.attempt(read, ClusterFile, known, where)
    sources = read_sources(data, where, problems)
    parts = _parts(data, where, problems)
    if isinstance(top.get("accelerator"), str):
        draft.chip = problems.attempt(find_chip, top["accelerator"])
    entries = data.get("links", [])
    for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        link = problems.attempt(link_from, entry, parts, sources, f"{where}: links[{i}]")
        draft.links += [link] if link is not None else []
    if "fabric" in data:
        draft.fabric = problems.attempt(fabric_from, data["fabric"], sources, f"{where}: fabric")
    torus = None
    if "torus" in data:
        torus = problems.attempt(torus_from, data["torus"], parts, sources, f"{where}: torus")
    if file is None or draft.chip is None or problems.messages:
        return draft
    draft.cluster = problems.attempt(_assembled, file, draft, parts, torus, sources, where)
    return draft


def _assembled(
    file: ClusterFile,
    draft: Draft,
    parts: Mapping[str, int],
    torus: Torus | None,
    sources: Mapping[str, Source],
    where: str,
) -> Cluster:
    """The cluster, once all tables could be read."""
    check_keys([file.cpu], CPUS, f"{where}: cpu", "make of CPU")
    chips = ValueEntry(parts["chip"], file.layout_source)
    domain = resolve_optional(file.domain_nodes, sources, f"{where}: domain_nodes")
    if domain is not None and torus is not None:
        raise InputError(f"{where}: torus: leave out domain_nodes; the largest slice says how many")
    slice_nodes = torus.chips // parts["chip"] if torus else 1
    assert draft.chip is not None
    return Cluster(
        name=file.name,
        title=file.name if file.title is None else file.title,
        accelerator=draft.chip,
        nodes=1,
        devices_per_node=parts["chip"],
        parts=parts,
        links=tuple(draft.links),
        layout=resolve(chips, sources, f"{where}: layout_source"),
        fabric=draft.fabric,
        peer_access=file.peer_access,
        virtual_devices=file.virtual_devices,
        domain_nodes=int(domain.value) if domain else slice_nodes,
        has_nvls=file.has_nvls,
        cpu=file.cpu,
        torus=torus,
    )


def _parts(data: Mapping[str, Any], where: str, problems: Problems) -> dict[str, int]:
    """Counts of [parts]: how many of each kind one host has."""
    table = read_table(data, "parts", f"{where}: parts", problems)
    problems.attempt(check_keys, table, HOST_PARTS, f"{where}: parts")
    counts = {
        kind: problems.attempt(convert, int, count, f"{where}: parts: {kind}")
        for kind, count in table.items()
    }
    negative = [kind for kind, count in counts.items() if count is not None and count < 0]
    if negative:
        problems.messages.append(
            f"{where}: parts: {negative[0]} = {counts[negative[0]]} is negative"
        )
    elif (counts.get("chip", 0) or 0) < 1:
        problems.messages.append(
            f"{where}: parts has no chip; write chip = 8 for eight accelerators"
        )
    return {kind: count or 0 for kind, count in counts.items()}
