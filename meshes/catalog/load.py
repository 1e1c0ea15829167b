"""Finding and loading catalogue files: by name from the package, or by path from the user."""

import tomllib
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.catalog.doubts import doubts as doubts_of
from scaling.meshes.catalog.format import accelerator_from, cluster_from
from scaling.meshes.catalog.overrides import apply_overrides
from scaling.meshes.catalog.sound import graph_problems
from scaling.meshes.cluster import Cluster, domain_split, max_nodes, torus_shape
from scaling.meshes.errors import InputError, nearest

ACCELERATORS, CLUSTERS = "accelerators", "clusters"
MOST_DEVICES = 10_000_000  # more take gigabytes of memory


def names() -> list[str]:
    """Names of the clusters in the catalogue."""
    return _names(CLUSTERS)


def accelerator_names() -> list[str]:
    """Names of the accelerators in the catalogue."""
    return _names(ACCELERATORS)


def load(
    name_or_path: str | Path,
    nodes: int = 1,
    overrides: dict[str, float] | None = None,
) -> Cluster:
    """A cluster of `nodes` hosts, by catalogue name or from a TOML file.

    Args:
        name_or_path: `dgx-h100`, or a path that ends in .toml.
        nodes: hosts.
        overrides: figures that differ from the file's, see meshes/catalog/overrides.py.

    Raises:
        InputError: unknown name, unreadable or wrong file, parts that no links join, more nodes
            than the fabric joins, or a bad override.
    """
    name = str(name_or_path)
    host = _catalogue_host(name) if name in names() else _read_host(name)
    if nodes < 1:
        raise InputError(f"a cluster has at least one node, got nodes={nodes}")
    if nodes * host.devices_per_node > MOST_DEVICES:
        raise InputError(
            f"{nodes} nodes of {host.name} are {nodes * host.devices_per_node:,} devices; "
            f"at most {MOST_DEVICES:,} can be priced: use fewer nodes"
        )
    most = max_nodes(host)
    if most is not None and nodes > most:
        raise InputError(
            f"{host.name} joins at most {most} node{'s' * (most > 1)}, got nodes={nodes}; use at "
            f"most {most}, or describe a larger fabric in a TOML file of your own"
        )
    split = domain_split(nodes, host.domain_nodes)
    cluster = replace(host, nodes=nodes, domain_nodes=split)
    cluster = apply_overrides(cluster, overrides or {}, host)
    if cluster.torus is not None:
        torus_shape(cluster)  # refuses a slice that no shape has
    return cluster


def doubts(name_or_path: str | Path, cluster: Cluster) -> list[str]:
    """What of a loaded cluster is probably not what was meant, one sentence each."""
    name = str(name_or_path)
    host = _catalogue_host(name) if name in names() else _read_host(name)
    return doubts_of(cluster, host)


def accelerator(name_or_path: str | Path) -> Accelerator:
    """An accelerator by catalogue name or from a TOML file."""
    data, where = read_toml(str(name_or_path), ACCELERATORS)
    return accelerator_from(data, where)


def read_toml(name_or_path: str, kind: str) -> tuple[dict[str, Any], str]:
    """The parsed file and how to call it in messages; InputError if it is missing or not TOML."""
    where, text = name_or_path, ""
    if name_or_path.endswith(".toml"):
        text = _user_text(Path(name_or_path))
    elif name_or_path in _names(kind):
        where = f"{name_or_path}.toml"
        text = files("scaling.meshes.catalog").joinpath(kind, where).read_text(encoding="utf-8")
    else:
        raise InputError(
            f"no {kind[:-1]} is called {name_or_path!r}; {nearest(name_or_path, _names(kind))}; "
            "a file of your own ends in .toml"
        )
    try:
        return tomllib.loads(text), where
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not TOML: {error}") from None


def accelerator_beside(name: str, cluster_path: str) -> Accelerator:
    """The accelerator that a cluster file names: of the catalogue, or a file beside it."""
    if name.endswith(".toml"):
        return accelerator(Path(cluster_path).parent / name)
    return accelerator(name)


@cache
def _catalogue_host(name: str) -> Cluster:
    """One node of a catalogue cluster; read once, for it does not change."""
    return _read_host(name)


def _read_host(name_or_path: str) -> Cluster:
    """One node of the cluster, without overrides."""
    data, where = read_toml(name_or_path, CLUSTERS)
    name = data.get("accelerator")
    if not isinstance(name, str):
        raise InputError(f"{where}: accelerator must be the name of a chip or a .toml file")
    host = cluster_from(data, accelerator_beside(name, name_or_path), where)
    for problem in graph_problems(host):
        raise InputError(f"{where}: {problem}")
    return host


@cache
def _names(kind: str) -> list[str]:
    folder = files("scaling.meshes.catalog").joinpath(kind)
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name[-5:] == ".toml")


def _user_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error}") from None
