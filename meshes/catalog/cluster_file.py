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
from scaling.meshes.catalog.figures import CatalogueFile
from scaling.meshes.cluster import HOST_PARTS, Cluster, CpuMake, Fabric, LinkSpec
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
    host_memory: SourcedValue | None = None  # bytes of one host


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


def kind_of(file: CatalogueFile) -> Literal["accelerator", "cluster"]:
    """The kind of thing that a file describes; InputError if it has the keys of neither."""
    if {"peaks", "figures", "vendor"} & set(file.data):
        return "accelerator"
    if {"accelerator", *TABLES, *MISPLACED} & set(file.data):
        return "cluster"
    raise InputError(
        f"{file.where} is neither a cluster file (accelerator, [parts], [[links]]) nor an "
        "accelerator file (vendor, [peaks], [figures]); `scaling cluster show rtx4090-8 --toml` "
        "prints an example to start from"
    )


@dataclass
class Draft:
    """A cluster file as far as it could be read."""

    parts: dict[str, int] = field(default_factory=dict)
    links: list[LinkSpec] = field(default_factory=list)
    fabric: Fabric | None = None
    torus: Torus | None = None
    chip: Accelerator | None = None
    cluster: Cluster | None = None  # None: there are problems


def read_cluster(file: CatalogueFile, find_chip: Callable[[str], Accelerator]) -> Draft:
    """One node of the cluster that a file describes, as far as it could be read.

    `find_chip` gives the accelerator of a name.
    """
    data, where, draft = file.data, file.where, Draft()
    for key in data:
        if key in MISPLACED:
            problem = f"{where}: no key {key!r} in a cluster file: {MISPLACED[key]}"
            file.messages.append(problem)
        else:
            file.attempt(check_keys, [key], CLUSTER_KEYS, where)
    top = {key: data[key] for key in CLUSTER_KEYS if key in data and key not in TABLES}
    facts = file.attempt(file.facts, ClusterFile, top, where)
    draft.parts = _parts(file)
    if isinstance(top.get("accelerator"), str):
        draft.chip = file.attempt(find_chip, top["accelerator"])
    entries = data.get("links", [])
    for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        link = file.attempt(_link, file, entry, draft.parts, f"{where}: links[{i}]")
        draft.links += [link] if link is not None else []
    if "fabric" in data:
        draft.fabric = file.attempt(_fabric, file)
    if "torus" in data:
        draft.torus = file.attempt(_torus, file, draft.parts.get("chip", 0))
    if facts is not None and draft.chip is not None and not file.messages:
        draft.cluster = file.attempt(_cluster, file, facts, draft)
    return draft


def _cluster(file: CatalogueFile, facts: ClusterFile, draft: Draft) -> Cluster:
    """The cluster, once all tables could be read."""
    where, chips, torus = file.where, draft.parts["chip"], draft.torus
    domain = 1 if facts.domain_nodes is None else int(facts.domain_nodes.value)
    if torus is not None:
        domain = torus.chips // chips
        if facts.domain_nodes is not None:
            raise InputError(
                f"{where}: torus: leave out domain_nodes; the largest slice says how many"
            )
    if facts.machine_numbers and sorted(facts.machine_numbers) != list(range(chips)):
        raise InputError(
            f"{where}: machine_numbers = {list(facts.machine_numbers)} must name each chip of the "
            f"host once, 0 to {chips - 1}"
        )
    layout = {"value": chips, "source": facts.layout_source}
    values = {key: value for key, value in vars(facts).items() if key != "layout_source"}
    values["title"] = facts.name if facts.title is None else facts.title
    values |= {"accelerator": draft.chip, "domain_nodes": domain}
    return Cluster(
        **values,
        nodes=1,
        devices_per_node=chips,
        parts=draft.parts,
        links=tuple(draft.links),
        layout=file.figure(layout, f"{where}: layout_source", "chips"),
        fabric=draft.fabric,
        torus=torus,
    )


def _link(file: CatalogueFile, entry: Any, parts: Mapping[str, int], where: str) -> LinkSpec:
    """The link of a [[links]] entry; InputError names all that is wrong with it."""
    if isinstance(entry, Mapping) and isinstance(entry.get("parts"), list):
        where += f": {entry.get('kind')} {' - '.join(map(str, entry['parts']))}"
    link, problems = file.facts(LinkSpec, entry, where), Problems()
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


def _fabric(file: CatalogueFile) -> Fabric:
    """The fabric of the [fabric] table; InputError names all that is wrong with it."""
    where = f"{file.where}: fabric"
    fabric = file.facts(Fabric, file.data["fabric"], where)
    if fabric.switch_ports is not None and fabric.switch_ports.value < 2:
        raise InputError(f"{where}: switch_ports must be at least 2, one down and one up")
    return fabric


def _torus(file: CatalogueFile, chips: int) -> Torus:
    """The torus of the [torus] table; InputError where it does not fit the chips of a host."""
    where = f"{file.where}: torus"
    torus = file.facts(Torus, file.data["torus"], where)
    dims = len(torus.shape)
    if not dims or len(torus.host) != dims or min(*torus.shape, *torus.host) < 1:
        raise InputError(
            f"{where}: shape = {list(torus.shape)} and host = {list(torus.host)} must have as many "
            "dimensions, each of at least 1; write shape = [16, 16], host = [2, 4]"
        )
    if math.prod(torus.host) != chips or any(map(operator.mod, torus.shape, torus.host)):
        raise InputError(
            f"{where}: host = {list(torus.host)} must hold the {chips} chips of a node and divide "
            f"shape = {list(torus.shape)}"
        )
    if torus.wrap < SMALLEST_RING:
        raise InputError(f"{where}: wrap = {torus.wrap} must be at least {SMALLEST_RING}")
    return torus


def _parts(file: CatalogueFile) -> dict[str, int]:
    """Counts of [parts], how many of each kind one host has; 1 of those that cannot be read."""
    table, where = file.table("parts"), f"{file.where}: parts"
    file.attempt(check_keys, table, HOST_PARTS, where)
    if table.get("chip", 0) == 0:
        file.messages.append(f"{where} has no chip; write chip = 8 for eight accelerators")
    counts = {kind: file.attempt(_count, kind, count, where) for kind, count in table.items()}
    return {kind: 1 if count is None else count for kind, count in counts.items()}


def _count(kind: str, value: Any, where: str) -> int:
    count = convert(int, value, f"{where}: {kind}")
    if count < 0:
        raise InputError(f"{where}: {kind} = {count} is negative")
    if count > MOST_PARTS:
        raise InputError(
            f"{where}: {kind} = {count:,} in one host; use at most {MOST_PARTS:,}, and --nodes "
            "for more hosts"
        )
    return int(count)
