"""A cluster as the text of a catalogue file, for users to complete and for `load` to read.

file = CatalogueFile(tomllib.loads(cluster_toml(cluster)), "mine.toml")
read_cluster(file, accelerator).cluster == cluster
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from scaling.meshes.cluster import Cluster, Fabric, LinkSpec
from scaling.meshes.provenance import Source, SourcedValue

FLAGS = ("peer_access", "virtual_devices", "has_nvls", "cpu", "machine_numbers")
Keys = dict[Source, str]  # the short name of each source


def cluster_toml(cluster: Cluster, comment: str = "") -> str:
    """The file of one host of `cluster`; `comment` is put before it."""
    keys: Keys = {}
    head = {"name": cluster.name, "title": cluster.title, "accelerator": cluster.accelerator.name}
    flags = {name: getattr(cluster, name) for name in FLAGS}
    top = [f"{k} = {_text(v)}" for k, v in {**head, **_unusual(Cluster, flags)}.items()]
    top.append(f"layout_source = {_text(_key(cluster.layout, keys))}")
    if cluster.domain_nodes > 1 and cluster.torus is None:
        nodes = replace(cluster.layout, value=cluster.domain_nodes, note="")
        top.append(f"domain_nodes = {_value(nodes, keys)}")
    for name in ("nvswitch_chips", "nvswitch_ports", "host_memory"):
        if (figure := getattr(cluster, name)) is not None:
            top.append(f"{name} = {_value(figure, keys)}")
    tables: list[tuple[str, Mapping[str, Any]]] = [("[parts]", cluster.parts)]
    tables += [("[[links]]", _unusual(LinkSpec, vars(link))) for link in cluster.links]
    tables += [("[torus]", vars(cluster.torus))] if cluster.torus else []
    tables += [("[fabric]", _unusual(Fabric, vars(cluster.fabric)))] if cluster.fabric else []
    body = [line for table in tables for line in _table(*table, keys)]
    for source, key in keys.items():
        top += _table(f"[sources.{key}]", _unusual(Source, vars(source)), keys)
    remarks = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join([*remarks, *top, *body]) + "\n"


def _unusual(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass that do not have their usual value."""
    usual = {field.name: field.default for field in fields(cls)}
    return {name: value for name, value in values.items() if value != usual[name]}


def _table(header: str, values: Mapping[str, Any], keys: Keys) -> list[str]:
    return ["", header, *(f"{name} = {_value(value, keys)}" for name, value in values.items())]


def _value(value: object, keys: Keys) -> str:
    """As TOML; a figure as a table with the short name of its source."""
    if not isinstance(value, SourcedValue):
        return _text(value)
    note = f", note = {_text(value.note)}" if value.note else ""
    return f"{{ value = {value.value!r}, source = {_text(_key(value, keys))}{note} }}"


def _key(figure: SourcedValue, keys: Keys) -> str:
    """The short name of a figure's source, a new one if it is new."""
    source = Source(figure.source, figure.date, figure.url, figure.seen)
    return keys.setdefault(source, f"source{len(keys) + 1}")


def _text(value: object) -> str:
    """As JSON, which writes strings, lists and truth values as TOML does, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
