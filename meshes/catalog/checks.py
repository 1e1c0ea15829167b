"""Everything that is wrong or doubtful in a user's cluster or accelerator file, all at once.

A problem starts with "error:" when the file cannot be used, with "warning:" when a figure looks
like a mistaken unit: bits for bytes, gigabytes for bytes, microseconds for seconds.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling.meshes.accelerator import FIGURE_NAMES
from scaling.meshes.catalog.format import AcceleratorFile, ClusterFile, cluster_from
from scaling.meshes.catalog.links import LinkEntry, link_from
from scaling.meshes.catalog.load import ACCELERATORS, CLUSTERS, accelerator_beside, read_toml
from scaling.meshes.catalog.plausible import doubtful_bandwidth, doubtful_latency
from scaling.meshes.catalog.sound import graph_problems
from scaling.meshes.cluster import HOST_PARTS
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.provenance import Source, ValueEntry, resolve
from scaling.meshes.reading import read

# Smallest credible figure of a chip; less looks like GB, GB/s or GHz.
SMALLEST = {"memory": 1e9, "usable_memory": 1e9, "memory_bandwidth": 1e9, "clock": 1e8}
SMALLEST_PEAK = 1e9  # FLOP/s; less looks like TFLOP/s


def check(path: str | Path) -> list[str]:
    """All problems of a cluster or accelerator file, one sentence each; empty when it is sound.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    data, where = read_toml(str(path), CLUSTERS)
    if "links" not in data and "parts" not in data:
        return list(_accelerator_problems(data, where))
    return list(_cluster_problems(data, where, str(path)))


def _accelerator_problems(data: Mapping[str, Any], where: str) -> Iterator[str]:
    """Each figure by itself, so that one mistake does not hide the next."""
    yield from _error(read, AcceleratorFile, {**data, **dict.fromkeys(TABLES, {})}, where)
    sources = dict(_readable(Source, data, "sources"))
    yield from _unreadable(Source, data, "sources", where)
    yield from _unreadable(ValueEntry, data, "peaks", where)
    yield from _unreadable(ValueEntry, data, "figures", where)
    yield from _error(check_keys, _table(data, "figures"), FIGURE_NAMES, f"{where}: figures")
    for name, entry in _readable(ValueEntry, data, "figures"):
        yield from _error(resolve, entry, sources, f"{where}: {name}")
        if 0 < entry.value < SMALLEST.get(name, 0):
            value = f"{entry.value:g}"
            yield f"warning: {where}: {name} = {value} looks like giga-units; write {value}e9"
    for dtype, entry in _readable(ValueEntry, data, "peaks"):
        yield from _error(resolve, entry, sources, f"{where}: peaks.{dtype}")
        if 0 < entry.value < SMALLEST_PEAK:
            value = f"{entry.value:g}"
            yield f"warning: {where}: peaks.{dtype} = {value} looks like TFLOP/s; write {value}e12"


TABLES = ("sources", "peaks", "figures")  # of an accelerator file


def _cluster_problems(data: Mapping[str, Any], where: str, path: str) -> Iterator[str]:
    chip = str(data.get("accelerator"))
    problems = [
        *_rest(data, where),
        *_link_problems(data, where),
        *_torus_problems(data, where),
        *_chip_problems(chip, path),
    ]
    yield from problems
    if not any(p.startswith("error:") for p in problems):
        try:
            cluster = cluster_from(data, accelerator_beside(chip, path), where)
            yield from (f"error: {where}: {problem}" for problem in graph_problems(cluster))
        except InputError as error:
            yield f"error: {error}"


def _chip_problems(chip: str, path: str) -> Iterator[str]:
    """Those of the accelerator file beside the cluster file, or that no such chip is known."""
    if not chip.endswith(".toml"):
        yield from _error(accelerator_beside, chip, path)
        return
    try:
        data, where = read_toml(str(Path(path).parent / chip), ACCELERATORS)
    except InputError as error:
        yield f"error: {error}"
    else:
        yield from _accelerator_problems(data, where)


def _rest(data: Mapping[str, Any], where: str) -> Iterator[str]:
    """Everything of a cluster file but its links."""
    yield from _error(read, ClusterFile, {**data, "links": [], "sources": {}}, where)
    yield from _unreadable(Source, data, "sources", where)
    yield from _error(check_keys, _table(data, "parts"), HOST_PARTS, f"{where}: parts")
    sources = dict(_readable(Source, data, "sources"))
    for name, entry in _readable(ValueEntry, data, "fabric"):
        zero_ok, label = name == "hop_latency", f"{where}: fabric: {name}"
        yield from _error(resolve, entry, sources, label, zero_ok)
        if name == "hop_latency":
            yield from doubtful_latency(label, entry.value)
        elif name.endswith("_nodes") and entry.value != int(entry.value):
            yield f"error: {label} = {entry.value:g} must be a whole number of nodes"


def _link_problems(data: Mapping[str, Any], where: str) -> Iterator[str]:
    parts, sources = _table(data, "parts"), dict(_readable(Source, data, "sources"))
    links = data.get("links", [])
    for i, link in enumerate(links if isinstance(links, list) else [links]):
        try:
            entry = read(LinkEntry, link, f"{where}: links[{i}]")
        except InputError as error:
            yield f"error: {error}"
            continue
        bare = replace(entry, bandwidth=None, latency=None)
        yield from _error(link_from, bare, parts, sources, where)
        label = f"{where}: {entry.kind} {' - '.join(entry.parts)}"
        if entry.bandwidth is not None:
            yield from _error(resolve, entry.bandwidth, sources, f"{label}: bandwidth")
            yield from doubtful_bandwidth(label, entry.kind, entry.bandwidth.value, entry.count)
        if entry.latency is not None:
            yield from _error(resolve, entry.latency, sources, f"{label}: latency", True)
            yield from doubtful_latency(label, entry.latency.value)


def _torus_problems(data: Mapping[str, Any], where: str) -> Iterator[str]:
    """Doubtful figures of a torus; its shape is checked when the cluster is made."""
    sources = dict(_readable(Source, data, "sources"))
    for name, entry in _readable(ValueEntry, data, "torus"):
        label, is_latency = f"{where}: torus: {name}", name == "hop_latency"
        yield from _error(resolve, entry, sources, label, is_latency)
        if is_latency:
            yield from doubtful_latency(label, entry.value)
        else:
            yield from doubtful_bandwidth(label, "ici", entry.value, 1)


def _error(function: Callable[..., Any], *arguments: Any) -> Iterator[str]:
    """The InputError that `function` raises, as a problem."""
    try:
        function(*arguments)
    except InputError as error:
        yield f"error: {error}"


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    return value if isinstance(value, Mapping) else {}


def _readable(cls: type, data: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    """(name, instance of `cls`) of those items of a table that can be read as one."""
    for name, value in _table(data, key).items():
        try:
            yield name, read(cls, value, name)
        except InputError:
            continue


def _unreadable(cls: type, data: Mapping[str, Any], key: str, where: str) -> Iterator[str]:
    for name, value in _table(data, key).items():
        yield from _error(read, cls, value, f"{where}: {key}.{name}")
