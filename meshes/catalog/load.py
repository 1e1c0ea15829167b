"""Finds, loads and checks catalogue files, by name from the package or by path."""

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.catalog.accelerator_file import read_accelerator
from scaling.meshes.catalog.cluster_file import Draft, kind_of, read_cluster
from scaling.meshes.catalog.figures import CatalogueFile
from scaling.meshes.catalog.lint import (
    graph_problems,
    lint_chip,
    lint_cluster,
    lint_domains,
    lint_links,
)
from scaling.meshes.catalog.overrides import apply_overrides
from scaling.meshes.cluster import Cluster, domain_split, max_nodes, torus_shape
from scaling.meshes.errors import InputError, nearest, whole_number
from scaling.meshes.reading import PACKAGE, parse_toml, read_text

CATALOGUE = PACKAGE / "meshes" / "catalog"
ACCELERATORS, CLUSTERS = "accelerators", "clusters"
MOST_DEVICES = 10_000_000  # more take gigabytes of memory


def names() -> list[str]:
    """Names of the clusters in the catalogue."""
    return _names(CLUSTERS)


def accelerator_names() -> list[str]:
    """Names of the accelerators in the catalogue."""
    return _names(ACCELERATORS)


def load(
    name_or_path: str | Path, nodes: int = 1, overrides: dict[str, float] | None = None
) -> Cluster:
    """A cluster of `nodes` hosts, by catalogue name or from a TOML file.

    Args:
        name_or_path: `dgx-h100`, or a path that ends in .toml.
        nodes: hosts.
        overrides: figures that differ from the file's, see meshes/catalog/overrides.py.

    Raises:
        InputError: unknown name, unreadable or wrong file (all its mistakes), parts that no links
            reach, more nodes than the fabric joins, or a bad override.
    """
    figures = tuple((overrides or {}).items())
    if str(name_or_path) in names():
        return _catalogue_cluster(str(name_or_path), nodes, figures)
    return _loaded(str(name_or_path), nodes, figures)


def _loaded(name_or_path: str, nodes: int, overrides: tuple[tuple[str, float], ...]) -> Cluster:
    host = one_host(name_or_path)
    nodes = whole_number("nodes", nodes)
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
    cluster = apply_overrides(cluster, dict(overrides), host)
    if cluster.torus is not None:
        torus_shape(cluster)  # refuses a slice that no shape has
    return cluster


_catalogue_cluster = lru_cache(_loaded)


def one_host(name_or_path: str | Path) -> Cluster:
    """One node of a cluster, as its file states it, without overrides."""
    name = str(name_or_path)
    return _catalogue_host(name) if name in names() else _read_host(name)


def warnings_of(name_or_path: str | Path, cluster: Cluster) -> list[str]:
    """Warnings about a cluster loaded from a name or path: figures that are probably not meant.

    A file of the catalogue is not checked again (tests do that), only what was overridden.
    """
    host = one_host(name_or_path)
    as_shipped = str(name_or_path) in names() and host == replace(
        cluster, nodes=host.nodes, domain_nodes=host.domain_nodes
    )
    figures = [] if as_shipped else lint_cluster(cluster)
    return [*figures, *lint_domains(cluster, host)]


def check(path: str | Path) -> list[str]:
    """All problems of a cluster or accelerator file, a sentence each; empty if there are none.

    "error: ..." where the file cannot be used, "warning: ..." where a figure looks wrong.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    file = CatalogueFile(*read_toml(str(path), CLUSTERS))
    warnings: list[str] = []
    try:
        if kind_of(file) == "accelerator":
            _, figures = read_accelerator(file)
            warnings += lint_chip(figures, file.where)
        else:
            draft = _draft(file, str(path))
            if draft.cluster is not None:
                warnings += lint_cluster(draft.cluster)
            else:  # what could be read of it
                warnings += lint_links(draft.links, draft.fabric, file.where)
                warnings += lint_chip(draft.chip.figures, draft.chip.name) if draft.chip else []
    except InputError as error:
        file.messages += str(error).split("\n")
    return [f"error: {text}" for text in file.messages] + [f"warning: {text}" for text in warnings]


def accelerator(name_or_path: str | Path) -> Accelerator:
    """An accelerator by catalogue name or from a TOML file."""
    name = str(name_or_path)
    return _catalogue_chip(name) if name in accelerator_names() else _read_accelerator(name)


def _read_accelerator(name_or_path: str) -> Accelerator:
    file = CatalogueFile(*read_toml(name_or_path, ACCELERATORS))
    if kind_of(file) == "cluster":
        raise InputError(f"{file.where} is a cluster file, not an accelerator file")
    chip, _ = read_accelerator(file)
    file.raise_any()
    assert chip is not None
    return chip


_catalogue_chip = cache(_read_accelerator)  # those files do not change


def read_toml(name_or_path: str, kind: str) -> tuple[dict[str, Any], str]:
    """The parsed file and how to call it in messages; InputError if it is missing or not TOML."""
    where, text = name_or_path, ""
    if name_or_path.endswith(".toml"):
        text = read_text(Path(name_or_path))
    elif name_or_path in _names(kind):
        where = f"{name_or_path}.toml"
        text = (CATALOGUE / kind / where).read_text(encoding="utf-8")
    else:
        raise InputError(
            f"no {kind[:-1]} is called {name_or_path!r} (a file of your own ends in .toml); "
            f"{nearest(name_or_path, _names(kind))}"
        )
    return parse_toml(text, where), where


def _read_host(name_or_path: str) -> Cluster:
    """One node of the cluster, without overrides."""
    file = CatalogueFile(*read_toml(name_or_path, CLUSTERS))
    if kind_of(file) == "accelerator":
        raise InputError(
            f"{file.where} is an accelerator file, not a cluster file; a cluster file names it: "
            f'accelerator = "{Path(file.where).name}"'
        )
    draft = _draft(file, name_or_path)
    file.raise_any()
    assert draft.cluster is not None
    return draft.cluster


_catalogue_host = cache(_read_host)  # those files do not change


def _draft(file: CatalogueFile, path: str) -> Draft:
    """The cluster file as far as it can be read; a cluster in it is connected."""

    def find_chip(name: str) -> Accelerator:
        return accelerator(Path(path).parent / name if name.endswith(".toml") else name)

    draft = read_cluster(file, find_chip)
    if draft.cluster is not None:
        file.messages += [f"{file.where}: {text}" for text in graph_problems(draft.cluster)]
    return draft


@cache
def _names(kind: str) -> list[str]:
    return sorted(file.stem for file in (CATALOGUE / kind).glob("*.toml"))


def loaded_already(cluster: Cluster, nodes: int | None, overrides: object) -> Cluster:
    """Return the cluster; raise InputError where it is to have other nodes or figures."""
    if overrides or nodes not in (None, cluster.nodes):
        raise InputError(
            f"cluster {cluster.name} is loaded already, with {cluster.nodes} node(s): give "
            "nodes and overrides to load_cluster"
        )
    return cluster
