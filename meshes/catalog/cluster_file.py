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

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.catalog.entries import (
    Sources,
    figure_from,
    read_facts,
    read_sources,
    read_table,
)
from scaling.meshes.cluster import (
    HOST_PARTS,
    Cluster,
    CpuMake,
    Fabric,
    LinkSpec,
)
from scaling.meshes.errors import InputError, Problems, check_keys
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.reading import convert
from scaling.meshes.torus import Torus

# Parts of a kind in one host, and links side by side: far above any. All are made one by one.
MOST_PARTS = 1024
SMALLEST_RING = 3  # chips; between two a wraparound link would be the same link again


@dataclass(frozen=True)
class ClusterFile:
    """The keys of clusters/*.toml before its first table; the tables are read one by one."""

    name: str
    accelerator: str  # a catalogue name, or a TOML file beside this one
    title: str | None = None  # None: the name
    layout_source: str = ""  # key of `sources`: where the counts of parts and the wiring come from
    domain_nodes: SourcedValue | None = None  # nodes in one NVLink domain
    peer_access: bool = True
    virtual_devices: bool = False
    has_nvls: bool = False  # its NVSwitches can add up (NVLink SHARP)
    cpu: CpuMake = ""
    machine_numbers: tuple[int, ...] = ()  # of chips 0, 1, ... as the host counts them; (): alike
    nvswitch_chips: SourcedValue | None = None  # of one host, or of its NVLink domain
    nvswitch_ports: SourcedValue | None = None  # of one of these chips


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
    """The kind of thing that a file describes; InputError if it has the keys of neither."""
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
    """One node of the cluster that a file describes, as far as it could be read.

    `find_chip` gives the accelerator of a name; `where` is the file's name in messages.
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
    sources = read_sources(data, where, problems)
    file = problems.attempt(read_facts, ClusterFile, known, sources, where)
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
    sources: Sources,
    where: str,
) -> Cluster:
    """The cluster, once all tables could be read."""
    if file.domain_nodes is not None and torus is not None:
        raise InputError(f"{where}: torus: leave out domain_nodes; the largest slice says how many")
    if file.machine_numbers and sorted(file.machine_numbers) != list(range(parts["chip"])):
        raise InputError(
            f"{where}: machine_numbers = {list(file.machine_numbers)} must name each chip of the "
            f"host once, 0 to {parts['chip'] - 1}"
        )
    chips = {"value": parts["chip"], "source": file.layout_source}
    domain = torus.chips // parts["chip"] if torus else 1
    if file.domain_nodes is not None:
        domain = int(file.domain_nodes.value)
    known = {key: value for key, value in vars(file).items() if key != "layout_source"}
    known["title"] = file.name if file.title is None else file.title
    known |= {"accelerator": draft.chip, "domain_nodes": domain}
    return Cluster(
        **known,
        nodes=1,
        devices_per_node=parts["chip"],
        parts=parts,
        links=tuple(draft.links),
        layout=figure_from(chips, sources, f"{where}: layout_source", "chips"),
        fabric=draft.fabric,
        torus=torus,
    )


def link_from(data: Any, parts: Mapping[str, int], sources: Sources, where: str) -> LinkSpec:
    """The link of a [[links]] entry; InputError names all that is wrong with it."""
    if isinstance(data, Mapping) and isinstance(data.get("parts"), list):
        where += f": {data.get('kind')} {' - '.join(map(str, data['parts']))}"
    link, problems = read_facts(LinkSpec, data, sources, where), Problems()
    problems.attempt(check_keys, link.parts, [*parts, "leaf"], where, "part")
    problems.attempt(_check_wiring, link, parts, where)
    problems.raise_any()
    return link


def _check_wiring(link: LinkSpec, parts: Mapping[str, int], where: str) -> None:
    """Raise InputError unless `wiring` and `pairs` name links that a host can have, each once."""
    first, second = link.parts
    if not 1 <= link.count <= MOST_PARTS:
        raise InputError(f"{where}: count = {link.count} must be from 1 to {MOST_PARTS:,}")
    if none := [part for part in link.parts if parts.get(part) == 0]:
        raise InputError(
            f"{where}: a host has {none[0]} = 0: leave the link out, or say how many there are"
        )
    if "leaf" in link.parts and link.parts != ("nic", "leaf"):
        raise InputError(f'{where}: only NICs have links to leaves; write parts = ["nic", "leaf"]')
    if link.wiring == "block" and first == second:
        raise InputError(
            f'{where}: parts of one kind are linked by wiring = "all" (each with each) or "pairs"'
        )
    if bool(link.pairs) != (link.wiring == "pairs"):
        raise InputError(f'{where}: pairs and wiring = "pairs" go together; write both or neither')
    seen = set()
    for i, j in link.pairs:
        if not (0 <= i < parts.get(first, 0) and 0 <= j < parts.get(second, 0)):
            raise InputError(
                f"{where}: pair [{i}, {j}] is outside a host, which has {parts.get(first, 0)} "
                f"{first} and {parts.get(second, 0)} {second}, counted from 0"
            )
        ends = frozenset((i, j)) if first == second else (i, j)
        if ends in seen or (first == second and i == j):
            raise InputError(f"{where}: pair [{i}, {j}] is there twice or links a part to itself")
        seen.add(ends)


def fabric_from(data: Any, sources: Sources, where: str) -> Fabric:
    """The fabric of a [fabric] table; InputError names all that is wrong with it."""
    fabric = read_facts(Fabric, data, sources, where)
    if fabric.switch_ports is not None and fabric.switch_ports.value < 2:
        raise InputError(f"{where}: switch_ports must be at least 2, one down and one up")
    return fabric


def torus_from(data: Any, parts: Mapping[str, int], sources: Sources, where: str) -> Torus:
    """The torus of a [torus] table; InputError where it does not fit the [parts]."""
    torus = read_facts(Torus, data, sources, where)
    dims = len(torus.shape)
    if not dims or len(torus.host) != dims or min(*torus.shape, *torus.host) < 1:
        raise InputError(
            f"{where}: shape = {list(torus.shape)} and host = {list(torus.host)} must have as many "
            "dimensions, each of at least 1; write shape = [16, 16], host = [2, 4]"
        )
    chips = parts.get("chip", 0)
    if math.prod(torus.host) != chips or any(map(operator.mod, torus.shape, torus.host)):
        raise InputError(
            f"{where}: host = {list(torus.host)} must hold the {chips} chips of a node and divide "
            f"shape = {list(torus.shape)}"
        )
    if torus.wrap < SMALLEST_RING:
        raise InputError(f"{where}: wrap = {torus.wrap} must be at least {SMALLEST_RING}")
    return torus


def _parts(data: Mapping[str, Any], where: str, problems: Problems) -> dict[str, int]:
    """Counts of [parts]: how many of each kind one host has."""
    table = read_table(data, "parts", where, problems)
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
    elif large := [kind for kind, count in counts.items() if (count or 0) > MOST_PARTS]:
        problems.messages.append(
            f"{where}: parts: {large[0]} = {counts[large[0]]:,} in one host; use at most "
            f"{MOST_PARTS:,}, and --nodes for more hosts"
        )
    elif (counts.get("chip", 0) or 0) < 1:
        problems.messages.append(
            f"{where}: parts has no chip; write chip = 8 for eight accelerators"
        )
    return {kind: count or 0 for kind, count in counts.items()}
